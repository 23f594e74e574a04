"""The aborted transactions that reach into consecutive chunks of a log."""

from collections import deque
from collections.abc import Iterable

from posthouse.client.manifests import AbortedTransaction
from posthouse.records.visibility import AbortedProducer


class AbortedAhead:
    """`visible_batches` needs the transactions of its data and no others: for one that ended before, it would
    wait for a marker that does not follow, and drop good records."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._open: list[AbortedTransaction] = []

    def of(self, base: int, last: int) -> list[AbortedProducer]:
        """Those with records or their marker from `base` to `last`. Chunks are asked for in their order."""
        while self._ahead and self._ahead[0].first_offset <= last:
            self._open.append(self._ahead.popleft())
        self._open = [each for each in self._open if each.last_offset >= base]
        return [AbortedProducer(each.producer_id, each.first_offset) for each in self._open]
