"""All logs of the shared storage that this broker knows."""

from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage.shared.logs.shared_log import SharedLog


class SharedLogs(dict[PartitionId, SharedLog]):
    def __init__(self) -> None:
        super().__init__()
        self._by_number: dict[int, SharedLog] = {}

    def __missing__(self, partition: PartitionId) -> SharedLog:
        raise UnknownPartition(f"there is no partition {partition}")

    def add(self, log: SharedLog) -> None:
        """A log that is known already stays as it is."""
        if log.partition not in self:
            self[log.partition] = log
            self._by_number[log.id] = log

    def remove(self, partition: PartitionId) -> None:
        found = self.pop(partition, None)
        if found is not None:
            self._by_number.pop(found.id, None)

    def numbered(self, number: int) -> SharedLog | None:
        """By its number in the database."""
        return self._by_number.get(number)

    def forget_producers(self) -> None:
        """This broker is not the coordinator any more."""
        for log in self.values():
            log.forget_producers()

    def expire_producers(self, before_ms: int) -> None:
        """Forget the producers that the database has forgotten."""
        for log in self.values():
            log.expire_producers(before_ms)
