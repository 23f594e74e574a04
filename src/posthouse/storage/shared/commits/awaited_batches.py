"""First batches of producers that failed: their producers repeat them, here or at another broker, and until
then the database refuses later ones.

Only producers of which the log knows nothing are remembered: for all others the database knows the sequence
that must follow. An idempotency key has one request: nothing follows it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId, is_keyed
from posthouse.storage.operations import Append, Operation
from posthouse.storage.producers import LAST_SEQUENCE
from posthouse.storage.shared.logs.shared_log import SharedLog

_MOST = 100_000
_SECONDS = 600.0
"""Longer than clients repeat a batch. It may have been repeated at another broker, of which this one hears
nothing, and a log that has forgotten the producer since must take any batch of it."""


class AwaitedBatch(NamedTuple):
    """A batch that failed and is to be repeated before others of its producer."""

    epoch: int
    sequence: int
    until: float
    """The monotonic time after which it is not awaited any more."""


class AwaitedBatches:
    def __init__(self, logs: Mapping[PartitionId, SharedLog], clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._awaited: dict[tuple[PartitionId, int], AwaitedBatch] = {}
        """By partition and producer."""

    def failed(self, operations: Iterable[Operation]) -> None:
        now = self._clock.monotonic()
        for each in operations:
            if (
                isinstance(each, Append)
                and each.header.producer_id >= 0
                and not is_keyed(each.header.producer_id)
            ):
                owner = self._logs.get(each.partition)
                if owner is not None and owner.producer(each.header.producer_id) is None:
                    self._await_again(each, now)
        while len(self._awaited) > _MOST:
            del self._awaited[next(iter(self._awaited))]

    def _await_again(self, failed: Append, now: float) -> None:
        header = failed.header
        key = (failed.partition, header.producer_id)
        known = self._awaited.get(key)
        if (
            known is not None
            and known.until > now
            and known.epoch >= header.producer_epoch
            and not (known.epoch == header.producer_epoch and _is_later(known.sequence, header.base_sequence))
        ):
            return  # the first batch that failed is the one to be repeated
        self._awaited.pop(key, None)  # the newest entries are kept longest
        until = now + _SECONDS
        self._awaited[key] = AwaitedBatch(header.producer_epoch, header.base_sequence, until)

    def answered(self, operations: Iterable[Operation]) -> None:
        """Batches that took effect are not awaited any more."""
        if self._awaited:
            for each in operations:
                if isinstance(each, Append) and each.base_offset >= 0:
                    self._awaited.pop((each.partition, each.header.producer_id), None)

    def before(self, operations: Iterable[Operation]) -> dict[int, int]:
        """Batches whose producer has to send another one first: its sequence, by the `id` of the Append.

        To be asked right before the call that writes them, when all that came before them is answered.
        """
        if not self._awaited:
            return {}
        found: dict[int, int] = {}
        now = self._clock.monotonic()
        for each in operations:
            if not isinstance(each, Append) or each.header.is_control:
                continue
            header = each.header
            awaited = self._awaited.get((each.partition, header.producer_id))
            if awaited is None:
                continue
            if awaited.until <= now:
                del self._awaited[each.partition, header.producer_id]
            elif header.producer_epoch == awaited.epoch and _is_later(header.base_sequence, awaited.sequence):
                found[id(each)] = awaited.sequence
        return found


def _is_later(sequence: int, than: int) -> bool:
    """Sequences begin again at 0 after the last one."""
    return 0 < (sequence - than) % (LAST_SEQUENCE + 1) < LAST_SEQUENCE // 2
