"""Pieces that were found for a reader, remembered for a moment: most readers go on where they have stopped.

To ask the database for each read took half of the time of reading history. What is remembered is as true as
what a slow reader holds: inline data and indexes that have gone are noticed, and objects stay for the grace
period of garbage collection. A log that was trimmed or compacted by another broker may be read as it was for
`KEPT_SECONDS`; this broker's own compaction makes it forget.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.storage.producers import AbortedTransaction
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow

KEPT_SECONDS = 3.0
_MOST_PIECES = 20_000
"""In memory, of all logs: about 8 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPieces:
    """Consecutive pieces of one log, as of one moment."""

    log: int
    pieces: Sequence[RunRow | SegmentRow]
    stable: int
    """Transactions below it were decided before."""
    aborted: Sequence[AbortedTransaction] | None
    """Those with records in the pieces below `stable`; None if they were not asked for."""
    until: float
    """The time of the event loop after which it is not used any more."""

    def holds(self, offset: int) -> bool:
        return bool(self.pieces) and self.pieces[0].base <= offset <= self.pieces[-1].last

    def window(self, offset: int, max_bytes: int) -> list[RunRow | SegmentRow]:
        """From the piece that holds `offset` on: at least that one, then up to `max_bytes`."""
        found: list[RunRow | SegmentRow] = []
        for piece in self.pieces:
            if piece.last < offset:
                continue
            if found and piece.size > max_bytes:
                break
            max_bytes -= piece.size
            found.append(piece)
        return found


class RememberedPieces:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[int, int], FoundPieces] = OrderedDict()
        """By log and first offset; the most recently used one is the last."""
        self._by_log: dict[int, list[FoundPieces]] = {}
        self._pieces = 0

    def add(self, found: FoundPieces) -> None:
        """Replaces what begins at the same offset of the log."""
        if not found.pieces:
            return
        key = (found.log, found.pieces[0].base)
        if (replaced := self._found.get(key)) is not None:
            self._drop(key, replaced)
        self._found[key] = found
        self._by_log.setdefault(found.log, []).append(found)
        self._pieces += len(found.pieces)
        while self._pieces > _MOST_PIECES and len(self._found) > 1:
            self._drop(*next(iter(self._found.items())))

    def get(self, log: int, offset: int, now: float, *, with_aborted: bool) -> FoundPieces | None:
        """What holds `offset`. With aborted transactions only if all below and at `offset` are decided."""
        for found in self._by_log.get(log, ()):
            if not found.holds(offset) or (
                with_aborted and (found.aborted is None or offset >= found.stable)
            ):
                continue
            key = (log, found.pieces[0].base)
            if found.until < now:
                self._drop(key, found)
                return None
            self._found.move_to_end(key)
            return found
        return None

    def forget(self, log: int) -> None:
        for found in self._by_log.pop(log, ()):
            del self._found[log, found.pieces[0].base]
            self._pieces -= len(found.pieces)

    def _drop(self, key: tuple[int, int], found: FoundPieces) -> None:
        del self._found[key]
        self._pieces -= len(found.pieces)
        of_log = self._by_log[found.log]
        of_log.remove(found)
        if not of_log:
            del self._by_log[found.log]
