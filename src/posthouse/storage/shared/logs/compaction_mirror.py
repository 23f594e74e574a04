"""What compaction changes in this broker's memory of a log."""

from collections.abc import Callable, Sequence

from posthouse.model.ids import PartitionId
from posthouse.storage.shared.logs.shared_log import SharedLog, Tails
from posthouse.storage.shared.logs.shared_logs import SharedLogs


class CompactionMirror:
    def __init__(self, logs: SharedLogs, tails: Tails, moved: Callable[[SharedLog], None]) -> None:
        """`moved` is told of logs whose segments are others now."""
        self._logs = logs
        self._tails = tails
        self._moved = moved

    def compacted(self, partition: PartitionId, *, to: int, growth: int) -> None:
        log = self._logs.get(partition)
        if log is not None:
            log.size += growth
            self._tails.forget_below(log, to)
            self._moved(log)

    def aborted_forgotten(self, partition: PartitionId, markers: Sequence[int]) -> None:
        log = self._logs.get(partition)
        if log is not None:
            log.forget_aborted(markers)
