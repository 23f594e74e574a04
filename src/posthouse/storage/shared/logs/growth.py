"""What commits of this broker have changed, gathered for other brokers."""

import asyncio

from posthouse.model.ids import PartitionId
from posthouse.storage.log_news import Grown, LogNews
from posthouse.storage.shared.logs.shared_logs import SharedLogs


class Growth:
    """Subscribed to the changes of this broker's commits: arrivals and trims."""

    def __init__(self, logs: SharedLogs, told: Grown) -> None:
        self._logs = logs
        self._told = told
        self._grown: set[PartitionId] = set()
        """In this turn of the event loop."""

    def arrived(self, partition: PartitionId, size: int) -> None:
        if not self._grown:
            asyncio.get_running_loop().call_soon(self._tell)
        self._grown.add(partition)

    def _tell(self) -> None:
        grown, self._grown = self._grown, set()
        news = []
        for partition in grown:
            log = self._logs.get(partition)
            if log is not None:  # else deleted meanwhile
                news.append(LogNews(log.id, log.start, log.end, log.stable))
        self._told(news)
