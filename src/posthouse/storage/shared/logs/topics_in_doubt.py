"""Topics whose last change failed without an answer: the database may have made the change all the same.

Other brokers act on what the database has, so this broker finds out what that is, in the background until the
database answers, and adopts it. `settle` is to be awaited before anything depends on the name of a topic.
After its lease is lost nothing is in doubt: the broker loads everything again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from posthouse.model.errors import StorageFenced, Unavailable
from posthouse.model.ids import TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.definition_changes import DefinitionChange, DefinitionsChanged
from posthouse.storage.shared.database import Database, DatabaseConnection, meaning
from posthouse.storage.shared.joined_calls import JoinedCalls
from posthouse.storage.shared.logs.loading import load_logs, load_topics, topic_uuid
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.time_limit import cut_if_cancelled, time_limit

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 1.0
_ANSWER_SECONDS = 15.0

CHECK_LEASE = "SELECT check_lease(%s, %s)"
LOCK_CHANGES = "SELECT FROM last_change FOR UPDATE"
"""Every change of topics locks this row, at the latest as its last step. With the lock, no commit of a change
is still on its way."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Doubt:
    """What this broker knew before the change."""

    topic: Topic | None
    """None if the topic was new."""
    logs: Sequence[SharedLog]
    """Commits that were queued before the change still bring these up to date."""


class TopicsInDoubt:
    """Owned by the event loop."""

    def __init__(
        self,
        database: Database,
        holder: UUID,
        epoch: int,
        topics: dict[TopicId, Topic],
        logs: SharedLogs,
        defaults: TopicConfig,
        changed: DefinitionsChanged,
    ) -> None:
        """`changed` is told what has been adopted."""
        self._database = database
        self._holder = holder
        self._epoch = epoch
        self._topics = topics
        self._logs = logs
        self._defaults = defaults
        self._changed = changed
        self._doubts: dict[TopicId, _Doubt] = {}
        """Without topics that are being changed again: that change decides."""
        self._under_way: Counter[TopicId] = Counter()
        self._settling = JoinedCalls(self._settle)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @contextmanager
    def change(self, topics: Iterable[TopicId]) -> Iterator[None]:
        """Around a change of these topics. If it fails, they are in doubt."""
        before = {id: self._before(id) for id in topics}
        self._under_way.update(list(before))
        try:
            yield
        except BaseException:
            self._doubts |= before
            self._start()
            raise
        finally:
            self._under_way.subtract(list(before))
            self._under_way = +self._under_way

    def is_changing(self, topic: TopicId) -> bool:
        """Whether a change of it is under way, or in doubt."""
        return topic in self._under_way or topic in self._doubts

    def _before(self, id: TopicId) -> _Doubt:
        earlier = self._doubts.pop(id, None)
        if earlier is not None:
            return replace(earlier)  # an answer to the earlier doubt is not one to this
        topic = self._topics.get(id)
        partitions = () if topic is None else topic.partition_ids()
        return _Doubt(topic=topic, logs=[self._logs[each] for each in partitions if each in self._logs])

    def _start(self) -> None:
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="topics in doubt")

    def __bool__(self) -> bool:
        return bool(self._doubts)

    async def settle(self) -> None:
        """Adopt what is true of the topics in doubt. Raises Unavailable if the database does not tell."""
        if self._doubts:
            await self._settling.call()

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._settling.close()

    async def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while self._doubts:
            await asyncio.sleep(pause)
            try:
                await self.settle()
            except StorageFenced as error:
                log.warning("topics in doubt are left to the next lease: %s", error)
                return
            except Unavailable as error:
                if pause == _PAUSE_SECONDS:  # one line for an outage, however long it is
                    log.warning("whether topics were changed is not known yet: %s", error)
            except Exception:
                log.exception("finding out whether topics were changed failed")
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _settle(self) -> None:
        asked = dict(self._doubts)
        if not asked:
            return
        connection = await self._database.connect("doubts")
        try:
            with time_limit(connection, _ANSWER_SECONDS):
                topics, logs = await cut_if_cancelled(connection, self._ask(connection, list(asked)))
        finally:
            await connection.close()
        self._adopt(asked, topics, logs)

    async def _ask(
        self, connection: DatabaseConnection, ids: Sequence[TopicId]
    ) -> tuple[dict[TopicId, Topic], list[SharedLog]]:
        """Those of the topics that exist, and their logs."""
        async with meaning("finding out whether topics were changed"):
            async with connection.transaction():
                await connection.execute(CHECK_LEASE, [self._holder, self._epoch])
                await connection.execute(LOCK_CHANGES)
            async with connection.transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                topics = await load_topics(connection, self._defaults, [topic_uuid(id) for id in ids])
                return topics, await load_logs(connection, topics)

    def _adopt(
        self,
        asked: Mapping[TopicId, _Doubt],
        found: Mapping[TopicId, Topic],
        logs: Sequence[SharedLog],
    ) -> None:
        settled = {id: doubt for id, doubt in asked.items() if self._doubts.get(id) is doubt}
        existing: list[Topic] = []
        deleted: list[Topic] = []
        for id, doubt in settled.items():
            del self._doubts[id]
            topic = found.get(id)
            if topic is not None:
                existing.append(topic)
                self._topics[id] = topic
                for each in doubt.logs:
                    self._logs.add(each)
            elif doubt.topic is not None:
                deleted.append(doubt.topic)
        for each in logs:
            if each.partition.topic in settled:
                self._logs.add(each)
        if existing or deleted:
            log.info("topics in doubt: %s exist, %s are deleted", _names(existing), _names(deleted))
            self._changed(DefinitionChange(topics=existing, deleted=deleted))


def _names(topics: Sequence[Topic]) -> str:
    return ", ".join(topic.name for topic in topics) or "none"
