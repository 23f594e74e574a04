"""All logs of the shared storage that this broker knows."""

from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage.shared.shared_log import SharedLog


class SharedLogs(dict[PartitionId, SharedLog]):
    def __missing__(self, partition: PartitionId) -> SharedLog:
        raise UnknownPartition(f"there is no partition {partition}")

    def expire_producers(self, before_ms: int) -> None:
        """Forget the producers that the database has forgotten, and changes that only local files need."""
        for log in self.values():
            if len(log.producers) or log.producers.is_changed:
                log.producers.expire(before_ms)
                log.producers.take_changes()
