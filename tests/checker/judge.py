"""The whole check of a history."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from tests.checker.deliveries import check_deliveries
from tests.checker.groups import check_groups
from tests.checker.history import Fault, Operation
from tests.checker.leases import check_leases
from tests.checker.log import Log
from tests.checker.orders import check_orders
from tests.checker.polls import check_polls
from tests.checker.queues import Queues, check_queues
from tests.checker.records import check_records
from tests.checker.report import WITHOUT_DURABILITY, Anomaly, Report
from tests.checker.transactions import check_transactions
from tests.checker.watermarks import check_watermarks


def check(history: Sequence[Operation], *, durable: bool = True) -> Report:
    """Every way in which the history breaks a promise. No correct broker, whatever crashes, retries and
    unknown outcomes there were, has a history with an anomaly. `durable`: what it acknowledges survives
    a crash; if it need not, only those anomalies are reported that no loss can excuse."""
    anomalies = [each for each in _anomalies(history) if durable or each.kind in WITHOUT_DURABILITY]
    return Report(
        anomalies,
        Counter(type(each).__name__ for each in history),
        Counter(each.name for each in history if isinstance(each, Fault)),
    )


def _anomalies(history: Sequence[Operation]) -> Iterator[Anomaly]:
    log = Log(history)
    queues = Queues(history)
    return chain(
        check_records(log),
        check_transactions(log),
        check_polls(log),
        check_orders(log),
        check_groups(log),
        check_watermarks(log),
        check_queues(queues),
        check_deliveries(queues),
        check_leases(history),
    )
