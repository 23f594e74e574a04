"""The client: one object for topics, groups, producing and consuming."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from posthouse.client.admin import (
    TopicSetting,
    add_partitions,
    change_group_settings,
    change_settings,
    create_topic,
    delete_topic,
    group_settings,
    topic_settings,
    trim_topic,
)
from posthouse.client.closable import Closable
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import RequestRefused
from posthouse.client.group_offsets import (
    GroupOffset,
    OffsetChange,
    commit_offsets,
    group_offsets,
    reset_offsets,
)
from posthouse.client.group_reading import GroupReading
from posthouse.client.groups import GroupInfo, delete_groups, describe_group, group_names, list_groups
from posthouse.client.key_places import key_places
from posthouse.client.manifests import (
    SegmentManifest,
    WantedRange,
    release_hold,
    renew_hold,
    segment_manifest,
)
from posthouse.client.permissions import (
    Permission,
    PermissionFilter,
    add_permissions,
    list_permissions,
    remove_permissions,
)
from posthouse.client.positions import PartitionBounds, Start, bounds_of, first_offsets, list_offsets
from posthouse.client.producer import BATCH_BYTES, Producer
from posthouse.client.quotas import QuotaEntity, QuotaName, change_quotas, list_quotas
from posthouse.client.ranges import FETCH_BYTES, RangeReading
from posthouse.client.reading import Message, Reading
from posthouse.client.security import OPEN, Security
from posthouse.client.single_records import records_at
from posthouse.client.spans import Span
from posthouse.client.topic_partitions import TopicPartition
from posthouse.client.two_phase_producer import TRANSACTION_MS, TwoPhaseProducer
from posthouse.client.users import UserInfo, change_password, create_user, delete_user, list_users
from posthouse.model.scram import DEFAULT_ITERATIONS
from posthouse.records.compression import Codec
from posthouse.records.record_names import Name

TIMEOUT = 30.0


class Client(Closable):
    """Connects when first used. `bootstrap` is HOST:PORT, or several of them separated by commas."""

    def __init__(self, bootstrap: str, *, timeout: float = TIMEOUT, security: Security = OPEN) -> None:
        self._cluster = Cluster(bootstrap, timeout=timeout, security=security)
        self._timeout = timeout

    def close(self) -> None:
        self._cluster.close()

    def topics(self) -> list[TopicInfo]:
        return self._cluster.topics()

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        return self._cluster.topic(name, create=create)

    def create_topic(
        self, name: str, *, partitions: int | None = None, settings: Mapping[str, str] | None = None
    ) -> int:
        """Create a topic; returns its number of partitions. None takes the broker's default."""
        return create_topic(self._cluster.any(), name, partitions, settings or {}, self._timeout)

    def delete_topic(self, name: str) -> None:
        delete_topic(self._cluster.any(), name, self._timeout)

    def trim_topic(self, name: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset, by partition. Returns where each of them starts now."""
        return trim_topic(self._cluster.any(), name, offsets, self._timeout)

    def add_partitions(self, name: str, total: int) -> None:
        add_partitions(self._cluster.any(), name, total, self._timeout)

    def topic_settings(self, name: str) -> list[TopicSetting]:
        return topic_settings(self._cluster.any(), name)

    def change_topic(
        self, name: str, *, settings: Mapping[str, str] | None = None, unset: Sequence[str] = ()
    ) -> None:
        change_settings(self._cluster.any(), name, settings or {}, unset)

    def group_settings(self, name: str) -> list[TopicSetting]:
        """The group need not exist yet."""
        return group_settings(self._cluster.any(), name)

    def change_group(
        self, name: str, *, settings: Mapping[str, str] | None = None, unset: Sequence[str] = ()
    ) -> None:
        """Settings of a group, which need not exist yet."""
        change_group_settings(self._cluster.any(), name, settings or {}, unset)

    def bounds(self, topics: Iterable[TopicInfo]) -> dict[tuple[str, int], PartitionBounds]:
        """Start and end of every partition, by topic name and partition."""
        return bounds_of(self._cluster, topics)

    def find_offsets(
        self,
        wanted: Iterable[tuple[TopicInfo, Iterable[int]]],
        timestamp: int,
        *,
        committed: bool = False,
    ) -> dict[tuple[str, int], int]:
        """The first offset at or after the timestamp (or LATEST, EARLIEST); -1 if there is none."""
        return list_offsets(self._cluster, wanted, timestamp, committed=committed)

    def offsets(self, topic: str, start: Start, *, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """The offset of `start` in each partition."""
        info = self.topic(topic)
        return first_offsets(self._cluster, info, info.check_partitions(partitions), start)

    def groups(self) -> list[GroupInfo]:
        return list_groups(self._cluster)

    def group_names(self) -> list[str]:
        return group_names(self._cluster)

    def group(self, name: str) -> GroupInfo:
        return describe_group(self._cluster, name)

    def group_offsets(self, group: GroupInfo) -> list[GroupOffset]:
        """Every partition with a committed offset or a member, in order."""
        return group_offsets(self._cluster, group)

    def reset_offsets(
        self,
        group: str,
        topics: Mapping[str, Iterable[int] | None],
        start: Start,
        *,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Reset a group without members to `start` in these partitions (None: all of the topic)."""
        return reset_offsets(self._cluster, group, topics, start, dry_run=dry_run)

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the offsets of a group without members, by topic name and partition."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, {})[partition] = offset
        pairs = [(self.topic(topic), partitions) for topic, partitions in by_topic.items()]
        commit_offsets(self._cluster, group, pairs)

    def commit_topic(self, group: str, topic: TopicInfo, offsets: Mapping[int, int]) -> None:
        """The same for one topic, by its id: refused if another topic has its name now."""
        commit_offsets(self._cluster, group, [(topic, offsets)])

    def delete_groups(self, names: Iterable[str]) -> dict[str, RequestRefused | None]:
        """Delete groups with their offsets; returns the error of each, or None."""
        return delete_groups(self._cluster, names)

    def users(self) -> list[UserInfo]:
        return list_users(self._cluster.any())

    def create_user(self, name: str, password: str, *, iterations: int = DEFAULT_ITERATIONS) -> None:
        """Create a user. The password does not leave this process."""
        create_user(self._cluster.any(), name, password, iterations=iterations)

    def change_password(self, name: str, password: str, *, iterations: int = DEFAULT_ITERATIONS) -> None:
        change_password(self._cluster.any(), name, password, iterations=iterations)

    def delete_user(self, name: str) -> None:
        delete_user(self._cluster.any(), name)

    def permissions(self, wanted: PermissionFilter | None = None) -> list[Permission]:
        return list_permissions(self._cluster.any(), wanted or PermissionFilter())

    def add_permissions(self, added: Sequence[Permission]) -> None:
        add_permissions(self._cluster.any(), added)

    def remove_permissions(self, wanted: Sequence[PermissionFilter]) -> list[Permission]:
        """Remove matching ACLs; returns them."""
        return remove_permissions(self._cluster.any(), wanted)

    def quotas(self) -> dict[QuotaEntity, dict[QuotaName, float]]:
        return list_quotas(self._cluster.any())

    def change_quotas(self, entity: QuotaEntity, changes: Mapping[QuotaName, float | None]) -> None:
        """Change quotas; None removes one."""
        change_quotas(self._cluster.any(), entity, changes)

    def producer(
        self, topic: str, *, codec: Codec = Codec.NONE, acks: int = -1, batch_bytes: int = BATCH_BYTES
    ) -> Producer:
        """A producer. The topic is created if it is missing and the broker allows that."""
        info = self.topic(topic, create=True)
        return Producer(self._cluster, info, codec=codec, acks=acks, batch_bytes=batch_bytes)

    def two_phase_producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = TRANSACTION_MS
    ) -> TwoPhaseProducer:
        """A transactional producer for two-phase commits. Give every process an id of its own."""
        return TwoPhaseProducer(
            self._cluster, transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )

    def reading(
        self,
        topic: str,
        start: Start,
        *,
        partitions: Iterable[int] | None = None,
        follow: bool = False,
    ) -> Reading:
        """What was fetched, undecoded: for those who decode by themselves or in bulk."""
        return self.reading_of([topic], start, partitions=partitions, follow=follow)

    def reading_of(
        self,
        topics: Iterable[str],
        start: Start,
        *,
        partitions: Iterable[int] | None = None,
        follow: bool = False,
    ) -> Reading:
        """The same of several topics; `partitions` are those to read of each."""
        chosen = None if partitions is None else list(partitions)
        infos = [self.topic(name) for name in dict.fromkeys(topics)]
        positions: dict[TopicPartition, int] = {}
        for info in infos:
            indexes = info.check_partitions(chosen)
            offsets = first_offsets(self._cluster, info, indexes, start, committed=True)
            positions |= {TopicPartition(info.name, index): offsets[index] for index in indexes}
        return Reading(self._cluster, infos, positions, follow=follow)

    def group_reading(
        self,
        group: str,
        *,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        start: Start | None = None,
    ) -> GroupReading:
        """As a member of a group; `start` (the end) is for partitions without a committed offset."""
        return GroupReading(self._cluster, group, topics=topics, pattern=pattern, start=start or Start.end())

    def range_of(
        self,
        info: TopicInfo,
        partition: int,
        first: int,
        end: int,
        *,
        committed: bool = True,
        fetch_bytes: int = FETCH_BYTES,
        spans: Sequence[Span] | None = None,
    ) -> RangeReading:
        """Offsets from `first` to before `end` of one partition, or only `spans` of them, undecoded, over a
        dedicated connection."""
        return RangeReading(
            self._cluster,
            info,
            partition,
            first,
            end,
            committed=committed,
            fetch_bytes=fetch_bytes,
            spans=spans,
        )

    def key_places(
        self, info: TopicInfo, name: Name, wanted: Sequence[tuple[int, Span]], *, gap: int
    ) -> list[tuple[Span, ...]]:
        """In which parts of spans of partitions the records of a key or message id are. Raises NoKeyIndex."""
        return key_places(self._cluster, info, name, wanted, gap=gap)

    def records_at(self, info: TopicInfo, partition: int, offsets: Sequence[int]) -> Iterator[Message]:
        """The committed records at these rising offsets."""
        return records_at(self._cluster, info, partition, offsets)

    def segment_manifest(
        self,
        wanted: Sequence[WantedRange],
        *,
        committed: bool = True,
        signed: bool = True,
        hold: bytes | None = None,
    ) -> SegmentManifest:
        """Where in the object store the records of ranges are. Raises NoSegmentObjects."""
        return segment_manifest(self._cluster, wanted, committed=committed, signed=signed, hold=hold)

    def renew_hold(self, hold: bytes) -> bool:
        """Keep the objects of a manifest; False if the hold is over."""
        return renew_hold(self._cluster, hold)

    def release_hold(self, hold: bytes) -> None:
        release_hold(self._cluster, hold)

    def messages(
        self,
        topic: str,
        start: Start | None = None,
        *,
        partitions: Iterable[int] | None = None,
        follow: bool = False,
    ) -> Iterator[Message]:
        """Every record from `start` (the beginning) on; with `follow` also future ones."""
        for fetched in self.reading(topic, start or Start.beginning(), partitions=partitions, follow=follow):
            yield from fetched.messages()
