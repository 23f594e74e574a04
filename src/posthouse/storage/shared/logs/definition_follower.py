"""Topics and cluster-wide state as other brokers change them.

The database numbers the changes (`read_changes`). What has changed is read again as a whole: a topic with its
logs, or a space of the state. A broker that is too far behind reads everything again.

This broker changes topics, too, and knows then what it has done. So an answer that is older than its last
change does not count: the question is repeated. (If the second answer is older as well, the database has
lost changes, and what it has counts.) Topics that it is changing while the answer arrives are left alone, and
asked for again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from posthouse.model.errors import Unavailable
from posthouse.model.ids import TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.definition_changes import DefinitionChange, DefinitionsChanged
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.joined_calls import JoinedCalls
from posthouse.storage.shared.logs.loading import load_logs, load_spaces, load_topics
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.time_limit import cut_if_cancelled
from posthouse.storage.spaces import CLUSTER_WIDE, Space

log = logging.getLogger(__name__)

UNKNOWN = -1
"""The number of a change before all others: everything is read again."""
_PAUSE_SECONDS = 0.2
_REFRESH_SECONDS = 0.05
"""Refreshes begin at most this often: requests for unknown names must not flood the database."""
_AWAY_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What has changed, as it is now."""

    last: int
    """The number of the last change."""
    asked: Sequence[TopicId] | None
    """The topics that have changed; None for all."""
    topics: dict[TopicId, Topic]
    """Those of them that exist."""
    logs: Sequence[SharedLog]
    state: Mapping[Space, Mapping[bytes, bytes]]


class DefinitionFollower:
    """Owned by the event loop."""

    def __init__(
        self,
        readers: Readers,
        logs: SharedLogs,
        topics: dict[TopicId, Topic],
        defaults: TopicConfig,
    ) -> None:
        self._readers = readers
        self._logs = logs
        self._topics = topics
        self._defaults = defaults
        self._subscribers: list[DefinitionsChanged] = []
        self.seen = 0
        """The number of the last change that is known here. It may be set before `start`."""
        self._last_own = 0
        """The number of the last change that this broker has made."""
        self.is_changing: Callable[[TopicId], bool] = lambda topic: False
        """Whether this broker is changing the topic."""
        self._coordinates_since: int | None = None
        self._looks = JoinedCalls(self._look, pause_seconds=_REFRESH_SECONDS)
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, changed: DefinitionsChanged) -> None:
        self._subscribers.append(changed)

    def tell(self, change: DefinitionChange) -> None:
        """Tell the subscribers of a change that storage has made already."""
        for each in self._subscribers:
            each(change)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="shared storage definitions")

    def changed_here(self, number: int) -> None:
        """This broker has made the change of this number, and knows it."""
        self._last_own = max(self._last_own, number)
        if number == self.seen + 1:
            self.seen = number

    def coordinate(self) -> None:
        """From now on only this broker changes cluster-wide state, which is not followed then."""
        self._coordinates_since = self.seen

    def stop_coordinating(self) -> None:
        """What was changed meanwhile is read again."""
        if self._coordinates_since is not None:
            self.seen = min(self.seen, self._coordinates_since)
        self._coordinates_since = None

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._looks.close()

    async def refresh(self) -> None:
        """Learn of all changes that were made before this call. Raises Unavailable."""
        await self._looks.call()

    async def _run(self) -> None:
        is_away = False
        while True:
            await asyncio.sleep(_AWAY_SECONDS if is_away else _PAUSE_SECONDS)
            try:
                await self._looks.call()
                is_away = False
            except Unavailable as error:
                if not is_away:  # one line for an outage, however long it is
                    log.warning("changes of topics and users are not known: %s", error)
                is_away = True
            except Exception:
                log.exception("following changes of topics and users failed")
                is_away = True

    async def _look(self) -> None:
        found = await self._found()
        if found is not None and found.last < self._last_own:
            found = await self._found()
        if found is not None:
            # Nothing is awaited: what is known here, and what the subscribers were told, is the same.
            change = self._apply(found)
            if change.topics or change.deleted or change.state:
                self.tell(change)

    async def _found(self) -> _Found | None:
        async with self._readers.connection("asking for changes of topics and users") as connection:
            return await cut_if_cancelled(connection, self._ask(connection))

    async def _ask(self, connection: DatabaseConnection) -> _Found | None:
        found = await connection.execute("SELECT * FROM read_changes(%s)", [self.seen], prepare=True)
        [(last, is_complete, ids, spaces)] = await found.fetchall()
        if is_complete and last == self.seen:
            return None
        if not is_complete:
            if self.seen != UNKNOWN:
                log.warning("changes of topics and users were missed: all are read again")
            ids, spaces = None, CLUSTER_WIDE
        topics = await load_topics(connection, self._defaults, ids)
        return _Found(
            last=last,
            asked=None if ids is None else [TopicId(id.bytes) for id in ids],
            topics=topics,
            logs=await load_logs(connection, topics),
            state=await load_spaces(connection, [Space(each) for each in spaces]),
        )

    def _apply(self, found: _Found) -> DefinitionChange:
        asked = {*self._topics, *found.topics} if found.asked is None else set(found.asked)
        left_alone = {id for id in asked if self.is_changing(id)}
        topics = {id: topic for id, topic in found.topics.items() if id not in left_alone}
        deleted = [
            self._topics.pop(id) for id in asked - left_alone if id in self._topics and id not in topics
        ]
        for topic in deleted:
            for partition in topic.partition_ids():
                self._logs.remove(partition)
        for each in found.logs:
            if each.partition.topic in topics:
                self._logs.add(each)
        self._topics |= topics
        if not left_alone:
            self.seen = found.last
        state = found.state if self._coordinates_since is None else {}
        return DefinitionChange(topics=list(topics.values()), deleted=deleted, state=state)
