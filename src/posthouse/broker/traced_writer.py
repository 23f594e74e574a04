"""A log writer that tells a tracer of every append. With tracing off the plain one is used instead."""

from collections.abc import Sequence

from posthouse.broker.appending import Produced
from posthouse.broker.log_writer import Appending, LogWriter, Referring
from posthouse.broker.tracing import Tracer
from posthouse.broker.traffic import Traffic
from posthouse.broker.transactions.coordinator import Transactions
from posthouse.broker.transactions.requests import TransactionalWriter
from posthouse.model.clock import Clock
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation


class TracedLogWriter(LogWriter):
    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        transactions: Transactions,
        queues: Referring,
        traffic: Traffic,
        tracer: Tracer,
    ) -> None:
        super().__init__(storage, clock, transactions, queues, traffic)
        self._tracer = tracer

    def append(
        self,
        batches: Sequence[Produced],
        writer: TransactionalWriter | None = None,
        *,
        routed: Sequence[Operation] | None = None,
        beside: Sequence[Operation] = (),
    ) -> Appending:
        tracer = self._tracer
        started = tracer.now()
        appending = super().append(batches, writer, routed=routed, beside=beside)
        if batches:
            tracer.appended(batches, appending, started=started, committing=tracer.now())
        return appending
