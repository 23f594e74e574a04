"""What all queues of a broker share."""

from collections.abc import Callable
from dataclasses import dataclass

from posthouse.broker.progress.progress import ProgressWriter
from posthouse.broker.queues.background import Background
from posthouse.broker.queues.stream_window import StreamMemory
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.tracing import Tracer
from posthouse.broker.traffic import Traffic
from posthouse.model.clock import Clock
from posthouse.storage.contract import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResources:
    storage: Storage
    clock: Clock
    progress_writer: ProgressWriter
    background: Background
    stream_memory: StreamMemory
    traffic: Traffic
    transaction: Callable[[], TransactionWave]
    """A new wave, written when it is told to."""
    tracer: Tracer | None = None
    """None where tracing is off."""
