"""Topics by name and by id, and the rules to create, change and delete them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from posthouse.broker.changes import SerializedChanges
from posthouse.model.errors import (
    InvalidPartitions,
    PosthouseError,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from posthouse.model.ids import TopicId, new_topic_id
from posthouse.model.scopes import Scope
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic, check_topic_name
from posthouse.storage.contract import Storage

MAX_PARTITIONS = 100_000
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partitions: int | None = None
    """None takes the broker's default."""
    overrides: Mapping[str, str] = field(default_factory=dict)


class Topics:
    """Owned by the event loop. Storage holds the truth; the names are an index over it."""

    def __init__(self, storage: Storage, defaults: TopicConfig, default_partitions: int) -> None:
        self._storage = storage
        self.defaults = defaults
        self._default_partitions = default_partitions
        self.by_name: dict[str, Topic] = {}
        """All but internal ones. Others only read it, and may keep it: it is always the same dictionary."""
        self._in_order: list[Topic] | None = None
        """Sorted by name; None after a change."""
        self._changes = SerializedChanges()
        """Serialized: each change starts from the stored result of the previous one. If that is not known,
        because storage failed without an answer, `settle_definitions` finds out first."""

    def load(self) -> None:
        self.by_name.clear()
        self.by_name |= {
            topic.name: topic for topic in self._storage.topics.values() if not topic.is_internal
        }
        self._in_order = None

    def follow(self, changed: Sequence[Topic], deleted: Sequence[Topic]) -> None:
        """Another broker has changed topics, or a change that failed here counts. Storage has the changes
        already."""
        for topic in deleted:
            known = self.by_name.get(topic.name)
            if known is not None and known.id == topic.id:
                del self.by_name[topic.name]
        adopted = [
            replace(topic, config=self.defaults.with_stored(topic.overrides, topic.name))
            for topic in changed
            if not topic.is_internal
        ]
        self.by_name |= {topic.name: topic for topic in adopted}
        self._in_order = None
        self._storage.adopt_topics(adopted)

    def __iter__(self) -> Iterator[Topic]:
        """A snapshot in the order of names."""
        if self._in_order is None:
            self._in_order = [self.by_name[name] for name in sorted(self.by_name)]
        return iter(self._in_order)

    def __len__(self) -> int:
        return len(self.by_name)

    def get(self, name: str) -> Topic:
        topic = self.by_name.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}")
        return topic

    def find(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def get_by_id(self, topic_id: TopicId) -> Topic:
        topic = self.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopic(f"there is no topic with id {topic_id.hex()}")
        return topic

    def find_by_id(self, topic_id: TopicId) -> Topic | None:
        topic = self._storage.topics.get(topic_id)
        return None if topic is None or topic.is_internal else topic

    async def create(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | PosthouseError]:
        """Create the valid ones in one durable step; the result of each is its topic or the error."""
        return await self._changes.make(self._create(wanted, validate_only))

    async def _create(self, wanted: Sequence[NewTopic], validate_only: bool) -> list[Topic | PosthouseError]:
        await self._storage.settle_definitions()
        if validate_only:
            await self._storage.refresh_definitions()
            return self._check_all(wanted)[0]
        for _ in range(_TRIES):
            results, accepted = self._check_all(wanted)
            try:
                if accepted:
                    await self._storage.create_topics(list(accepted.values()))
            except TopicExists:  # another broker has just created one of them
                await self._storage.refresh_definitions()
                continue
            stored = {name: self._storage.topics[topic.id] for name, topic in accepted.items()}
            self.by_name |= stored
            self._in_order = None
            return [stored[each.name] if isinstance(each, Topic) else each for each in results]
        raise Unavailable("other brokers create and delete the same topics: try again")

    def _check_all(self, wanted: Sequence[NewTopic]) -> tuple[list[Topic | PosthouseError], dict[str, Topic]]:
        """The result of each, and the topics that can be created, by name."""
        results: list[Topic | PosthouseError] = []
        accepted: dict[str, Topic] = {}
        for new in wanted:
            try:
                topic = self._checked(new)
                if new.name in accepted:
                    raise TopicExists(f"topic {new.name!r} is named twice")
            except PosthouseError as error:
                results.append(error)
                continue
            accepted[new.name] = topic
            results.append(topic)
        return results, accepted

    def _checked(self, new: NewTopic) -> Topic:
        check_topic_name(new.name)
        if new.name in self.by_name:
            raise TopicExists(f"topic {new.name!r} exists already")
        partitions = self._default_partitions if new.partitions is None else new.partitions
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        config = self.defaults.with_overrides(new.overrides)
        return Topic(
            id=new_topic_id(),
            name=new.name,
            partitions=partitions,
            overrides=dict(new.overrides),
            config=config,
        )

    async def claim(self, names: Collection[str], scope: Scope) -> None:
        """The topics of these names belong to the scope, which this broker has taken: others write to them no
        more, nor to topics of these names that are created later. Durable on return."""
        if claimed := await self._storage.announce_sources(names, scope):
            await self._changes.make(self._give(claimed, scope))

    async def _give(self, names: Iterable[str], scope: Scope) -> None:
        await self._storage.refresh_definitions()  # another broker may have created them
        topics = [topic for name in names if (topic := self.by_name.get(name)) and topic.scope is None]
        if topics:
            await self._storage.give_topics(topics, scope)
            self.by_name |= {topic.name: self._storage.topics[topic.id] for topic in topics}
            self._in_order = None

    async def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> Topic:
        return await self._changes.make(self._grow(name, partitions, validate_only))

    async def _grow(self, name: str, partitions: int, validate_only: bool) -> Topic:
        topic = await self._to_change(name)
        if partitions <= topic.partitions:
            raise InvalidPartitions(
                f"topic {name!r} has {topic.partitions} partitions; {partitions} is not an increase"
            )
        if partitions > MAX_PARTITIONS:
            raise InvalidPartitions(f"a topic has at most {MAX_PARTITIONS} partitions")
        return await self._replace(replace(topic, partitions=partitions), validate_only)

    async def configure(
        self, name: str, change: Callable[[Topic], Mapping[str, str]], *, validate_only: bool = False
    ) -> Topic:
        """Replace the topic's overrides by those that `change` returns."""
        return await self._changes.make(self._configure(name, change, validate_only))

    async def _configure(
        self, name: str, change: Callable[[Topic], Mapping[str, str]], validate_only: bool
    ) -> Topic:
        topic = await self._to_change(name)
        overrides = dict(change(topic))
        config = self.defaults.with_overrides(overrides)
        return await self._replace(replace(topic, overrides=overrides, config=config), validate_only)

    async def _to_change(self, name: str) -> Topic:
        """Only this broker changes topics, but others create them. Raises UnknownTopic."""
        await self._storage.settle_definitions()
        if name not in self.by_name:
            await self._storage.refresh_definitions()
        return self.get(name)

    def check_defaults(self, defaults: TopicConfig) -> None:
        """Raises InvalidConfig if a topic's overrides are incompatible with these defaults."""
        for topic in self.by_name.values():
            defaults.with_overrides(topic.overrides)

    async def set_defaults(self, defaults: TopicConfig) -> None:
        """Set the defaults of all topics. Nothing is stored: see `dynamic_settings`."""
        if defaults != self.defaults:
            await self._changes.make(self._set_defaults(defaults))

    async def _set_defaults(self, defaults: TopicConfig) -> None:
        self.adopt_defaults(defaults)

    def adopt_defaults(self, defaults: TopicConfig) -> None:
        """As `set_defaults`, where no other change can be under way. Raises InvalidConfig."""
        if defaults == self.defaults:
            return
        adopted = {
            name: replace(topic, config=defaults.with_overrides(topic.overrides))
            for name, topic in self.by_name.items()
        }
        self.defaults = defaults
        self.by_name |= adopted
        self._in_order = None
        self._storage.adopt_topics(list(adopted.values()))

    async def _replace(self, topic: Topic, validate_only: bool) -> Topic:
        if not validate_only:
            await self._storage.update_topic(topic)
            topic = self.by_name[topic.name] = self._storage.topics[topic.id]
            self._in_order = None
        return topic

    async def delete(self, topics: Sequence[Topic]) -> None:
        """Delete topics: clients lose access at once; storage then frees the space."""
        await self._changes.make(self._delete(topics))

    async def _delete(self, topics: Sequence[Topic]) -> None:
        await self._storage.settle_definitions()
        for topic in topics:
            self.by_name.pop(topic.name, None)
        self._in_order = None
        try:
            await self._storage.delete_topics([topic.id for topic in topics])
        except PosthouseError:
            self.load()
            raise
