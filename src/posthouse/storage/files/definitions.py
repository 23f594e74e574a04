"""Create, change and delete topics in the catalog.

A change is made both in the catalog and in memory, or in neither, even if the caller is cancelled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from posthouse.model.errors import PosthouseError
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.files.catalog.rows import TopicRow
from posthouse.storage.files.commits.background_worker import BackgroundWorker
from posthouse.storage.files.commits.checkpoints import Checkpoints
from posthouse.storage.files.segments.header import read_start
from posthouse.storage.files.segments.logs import Logs, topic_directory
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.operations import Put

log = logging.getLogger(__name__)


class Definitions:
    """Owned by the event loop."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        files: OpenFiles,
        catalog: Catalog,
        background: BackgroundWorker,
        logs: Logs,
        checkpoints: Checkpoints,
        *,
        leave: Callable[[Sequence[TopicId]], Awaitable[None]],
    ) -> None:
        """`leave` returns when no commit and no compaction works on the topics."""
        self._directory = directory
        self._disk = disk
        self._files = files
        self._catalog = catalog
        self._background = background
        self._logs = logs
        self._checkpoints = checkpoints
        self._leave = leave
        self.topics: dict[TopicId, Topic] = {}

    async def put(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        """Add topics, or change existing ones."""
        await _to_its_end(self._put(topics, state))

    async def _put(self, topics: Sequence[Topic], state: Sequence[Put]) -> None:
        values = {(int(put.space), put.key): put.value for put in state}
        await self._background.do(self._catalog.put_topics, [TopicRow.of(topic) for topic in topics], values)
        for topic in topics:
            self.topics[topic.id] = topic
            self._logs.learn(topic)
        self._background.later("the catalog's backup could not be updated", self._catalog.update_backup)

    def adopt(self, topics: Sequence[Topic]) -> None:
        """Change the effective settings of existing topics. The catalog stores only their overrides."""
        for topic in topics:
            self.topics[topic.id] = topic
            self._logs.learn(topic)

    async def delete(self, topics: Sequence[TopicId]) -> None:
        await _to_its_end(self._delete(topics))

    async def _delete(self, topics: Sequence[TopicId]) -> None:
        doomed = [self.topics[id] for id in topics if id in self.topics]
        logs = {id: self._logs[id] for topic in doomed for id in topic.partition_ids()}
        for topic in doomed:
            del self.topics[topic.id]
        for id in logs:
            del self._logs[id]
        await self._leave([topic.id for topic in doomed])
        try:
            await self._background.do(
                self._catalog.put_topics, [TopicRow.of(topic, deleted=True) for topic in doomed]
            )
        except PosthouseError:
            self.topics |= {topic.id: topic for topic in doomed}
            self._logs |= logs
            for owner in logs.values():
                owner.roll_back()  # rollbacks during the deletion did not reach it
            raise
        for owner in logs.values():
            self._checkpoints.forget(owner)
            owner.is_deleted = True
            owner.segments.clear()  # a reader that still has the log finds it empty instead of missing files
        await self._background.do(self.finish_deleting, [topic.id for topic in doomed])

    def finish_deleting(self, topics: Sequence[TopicId]) -> None:
        """Delete the files, then the rows, of topics that the catalog marks as deleted. On the background
        thread."""
        # First: a catalog restored from the backup must not have a topic whose files are deleted.
        self._catalog.update_backup()
        for topic in topics:
            self._remove_files(topic_directory(self._directory, topic))
        if topics:
            self._catalog.forget_topics(topics)

    def _remove_files(self, directory: str) -> None:
        """Delete a topic's files, except misplaced segments of other topics."""
        kept = 0
        for name in self._disk.names(directory):
            path = f"{directory}/{name}"
            found = read_start(self._disk, path).identity
            self._files.drop(path)
            if found is not None and found.partition.topic in self.topics:
                log.error("%s: not deleted with its topic, because it is %s. Move it back", path, found)
                kept += 1
            else:
                self._disk.remove(path)
        if not kept:
            self._disk.remove_directory(directory)


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
