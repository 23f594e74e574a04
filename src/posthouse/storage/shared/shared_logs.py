"""All logs of the shared storage that this broker knows."""

from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage.shared.shared_log import SharedLog


class SharedLogs(dict[PartitionId, SharedLog]):
    def __missing__(self, partition: PartitionId) -> SharedLog:
        raise UnknownPartition(f"there is no partition {partition}")
