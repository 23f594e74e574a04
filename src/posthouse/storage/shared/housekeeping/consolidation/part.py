"""The runs of one log that become segments together."""

from collections import Counter
from collections.abc import Sequence

from posthouse.records.batch import iter_headers
from posthouse.storage.shared.housekeeping.consolidation.due import DueLog
from posthouse.storage.shared.housekeeping.consolidation.salvage import salvaged
from posthouse.storage.shared.housekeeping.segment_image import SegmentImage
from posthouse.storage.shared.reads.runs import RunRow, batches_of, damaged


class LogPart:
    """Takes the runs of a log one after the other, from `segments_to` on, and makes segments of them.

    Runs below the start of the log are counted, but not written.
    """

    def __init__(self, log: DueLog, *, segment_bytes: int) -> None:
        self.log = log
        self._segment_bytes = min(log.config.segment_bytes, segment_bytes)
        self.segments: list[SegmentImage] = []
        self.to = log.segments_to
        self.objects: Counter[int] = Counter()
        """How many of the runs lie in which object, without those whose damaged bytes stay there."""
        self.runs = 0
        self._run_bytes = 0

    @property
    def added_bytes(self) -> int:
        """What the bytes of the log change by: less where segments cut a run and end below the start."""
        start = self.log.start
        return sum(each.batch_bytes for each in self.segments if each.next_offset > start) - self._run_bytes

    def is_dead(self, run: RunRow) -> bool:
        return run.last < self.log.start

    def add(self, runs: Sequence[RunRow], data: Sequence[bytes | memoryview]) -> None:
        """Raises DataDamaged for a run that is damaged or does not follow; those before it are taken."""
        for run, run_data in zip(runs, data, strict=True):
            if run.base != self.to:
                raise damaged(run, f"it does not follow offset {self.to - 1}")
            if not self.is_dead(run):
                self._write(run, batches_of(run, run_data))
            if run.object is not None:
                self.objects[run.object] += 1
            self._count(run)

    def salvage(self, run: RunRow, data: bytes | memoryview) -> None:
        """Take what is left of a damaged run, whose bytes are `data`: see `salvaged`. If its object has any
        of them, the object stays."""
        assert run.base == self.to
        if run.object is not None and not data:
            self.objects[run.object] += 1
        self._write(run, salvaged(run, b"" if run.refs is not None else data))
        self._count(run)

    def _count(self, run: RunRow) -> None:
        self.to = run.last + 1
        self.runs += 1

    def _write(self, run: RunRow, batches: bytearray) -> None:
        with memoryview(batches) as view:
            for position, header in iter_headers(view):
                segment = self.segments[-1] if self.segments else None
                if segment is None or segment.batch_bytes + header.length > self._segment_bytes:
                    segment = SegmentImage(
                        self.log.partition,
                        header.base_offset,
                        self.log.config,
                        created_ms=run.created_ms,
                        generation=0,
                    )
                    self.segments.append(segment)
                segment.add(view[position : position + header.length], header)
        self._run_bytes += run.size
