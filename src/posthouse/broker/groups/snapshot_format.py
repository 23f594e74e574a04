"""Stored members of a group that moves from one broker of a cluster to another: see `handover`.

Storage has at most one entry for each group in `Space.GROUP_MEMBERS`. Fields are those of `fields`:

    key    group in UTF-8
    value  version u8 = 1 | kind u8 | time of storing in ms, number | group

    classic group (kind 1)
      generation, number | protocol type, text | protocol, optional text | leader, optional text
        | is stable, flag
      list of members: identity | session, seconds | rebalance timeout, seconds | assignment, bytes
        | protocols
    consumer group (kind 2)
      epoch, number | target epoch, number | longest session, seconds
      list of topics: topic id, 16 bytes | partitions, number
      list of members: identity | rack, optional text | rebalance timeout, seconds | list of topics, texts
        | pattern, optional text | assignor, optional text | epoch, number | previous epoch, number
        | progress, u8 | target, partitions | assigned, partitions | giving up, partitions
        | list of: partition | epoch in which it was given, number
        | rebalance timeout is running, flag | optional guest: session, seconds | protocols

    identity    id, text | instance id, optional text | client id, text | client host, text
    protocols   list of: name, text | metadata, bytes
    partitions  list of: partition
    partition   topic id, 16 bytes | number u32

An entry lives from the last commit of a broker that gives the group up to the first one of the next, which
removes it before it serves the group. So it is never older than anything that a broker knows of the group.
If one of the two dies in between, the entry is there for the broker after them, and just as true.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from posthouse.broker.groups.classic_snapshot import ClassicMemberSnapshot, ClassicSnapshot
from posthouse.broker.groups.consumer_member import ConsumerMemberState, Guest
from posthouse.broker.groups.consumer_snapshot import ConsumerMemberSnapshot, ConsumerSnapshot
from posthouse.broker.groups.fields import FieldReader, FieldWriter
from posthouse.broker.groups.membership import MemberClient, OfferedProtocol
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId

Snapshot = ClassicSnapshot | ConsumerSnapshot

_VERSION = 1
_CLASSIC = 1
_CONSUMER = 2
_TOPIC_ID = 16
_INDEX = 4
_PROGRESS = {
    ConsumerMemberState.STABLE: 0,
    ConsumerMemberState.GIVING_UP: 1,
    ConsumerMemberState.WAITING: 2,
}
_PROGRESS_OF = {number: progress for progress, number in _PROGRESS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    stored_ms: int
    group: Snapshot


def encoded_snapshot(stored: StoredSnapshot) -> bytes:
    writer = FieldWriter()
    group = stored.group
    kind = _CLASSIC if isinstance(group, ClassicSnapshot) else _CONSUMER
    writer.fixed(bytes([_VERSION, kind]))
    writer.number(stored.stored_ms)
    if isinstance(group, ClassicSnapshot):
        _write_classic(writer, group)
    else:
        _write_consumer(writer, group)
    return writer.value()


def decoded_snapshot(value: bytes) -> StoredSnapshot:
    """Raises DataDamaged."""
    reader = FieldReader(value)
    version, kind = reader.fixed(2)
    if version != _VERSION or kind not in (_CLASSIC, _CONSUMER):
        raise DataDamaged(f"members of a group are stored in the unknown form {version}, {kind}")
    stored_ms = reader.number()
    group = _read_classic(reader) if kind == _CLASSIC else _read_consumer(reader)
    reader.end()
    if not group.members or len({each.id for each in group.members}) < len(group.members):
        raise DataDamaged("a stored group has no members, or one of them twice")
    return StoredSnapshot(stored_ms=stored_ms, group=group)


def _write_classic(writer: FieldWriter, group: ClassicSnapshot) -> None:
    def write_member(member: ClassicMemberSnapshot) -> None:
        _write_identity(writer, member)
        writer.seconds(member.session_seconds)
        writer.seconds(member.rebalance_seconds)
        writer.bytes(member.assignment)
        _write_protocols(writer, member.protocols)

    writer.number(group.generation)
    writer.text(group.protocol_type)
    writer.optional(group.protocol, writer.text)
    writer.optional(group.leader, writer.text)
    writer.flag(group.is_stable)
    writer.list(group.members, write_member)


def _read_classic(reader: FieldReader) -> ClassicSnapshot:
    def read_member() -> ClassicMemberSnapshot:
        id, instance, client = _read_identity(reader)
        return ClassicMemberSnapshot(
            id=id,
            instance=instance,
            client=client,
            session_seconds=reader.seconds(),
            rebalance_seconds=reader.seconds(),
            assignment=reader.bytes(),
            protocols=_read_protocols(reader),
        )

    found = ClassicSnapshot(
        generation=reader.number(),
        protocol_type=reader.text(),
        protocol=reader.optional(reader.text),
        leader=_id(reader.optional(reader.text)),
        is_stable=reader.flag(),
        members=reader.list(read_member),
    )
    if found.is_stable and found.protocol is None:
        raise DataDamaged("a stored group is stable and has no protocol")
    return found


def _write_consumer(writer: FieldWriter, group: ConsumerSnapshot) -> None:
    def write_topic(topic: tuple[TopicId, int]) -> None:
        writer.fixed(topic[0])
        writer.number(topic[1])

    writer.number(group.epoch)
    writer.number(group.target_epoch)
    writer.seconds(group.session_seconds)
    writer.list(group.topics.items(), write_topic)
    writer.list(group.members, partial(_write_consumer_member, writer))


def _write_consumer_member(writer: FieldWriter, member: ConsumerMemberSnapshot) -> None:
    def write_given(given: tuple[PartitionId, int]) -> None:
        writer.fixed(_partition(given[0]))
        writer.number(given[1])

    def write_guest(guest: Guest) -> None:
        writer.seconds(guest.session_seconds)
        _write_protocols(writer, guest.protocols)

    _write_identity(writer, member)
    writer.optional(member.rack, writer.text)
    writer.seconds(member.rebalance_seconds)
    writer.list(member.topics, writer.text)
    writer.optional(member.pattern, writer.text)
    writer.optional(member.assignor, writer.text)
    writer.number(member.epoch)
    writer.number(member.previous_epoch)
    writer.fixed(bytes([_PROGRESS[member.progress]]))
    for partitions in (member.target, member.assigned, member.giving_up):
        writer.list(map(_partition, partitions), writer.fixed)
    writer.list(member.given_in.items(), write_given)
    writer.flag(member.has_deadline)
    writer.optional(member.guest, write_guest)


def _read_consumer(reader: FieldReader) -> ConsumerSnapshot:
    def read_topic() -> tuple[TopicId, int]:
        return TopicId(reader.fixed(_TOPIC_ID)), reader.number()

    return ConsumerSnapshot(
        epoch=reader.number(),
        target_epoch=reader.number(),
        session_seconds=reader.seconds(),
        topics=dict(reader.list(read_topic)),
        members=reader.list(partial(_read_consumer_member, reader)),
    )


def _read_consumer_member(reader: FieldReader) -> ConsumerMemberSnapshot:
    def read_given() -> tuple[PartitionId, int]:
        return _read_partition(reader), reader.number()

    def read_guest() -> Guest:
        return Guest(session_seconds=reader.seconds(), protocols=_read_protocols(reader))

    def read_partitions() -> frozenset[PartitionId]:
        return frozenset(reader.list(partial(_read_partition, reader)))

    id, instance, client = _read_identity(reader)
    member = ConsumerMemberSnapshot(
        id=id,
        instance=instance,
        client=client,
        rack=reader.optional(reader.text),
        rebalance_seconds=reader.seconds(),
        topics=frozenset(reader.list(reader.text)),
        pattern=reader.optional(reader.text),
        assignor=reader.optional(reader.text),
        epoch=reader.number(),
        previous_epoch=reader.number(),
        progress=_read_progress(reader),
        target=read_partitions(),
        assigned=read_partitions(),
        giving_up=read_partitions(),
        given_in=dict(reader.list(read_given)),
        has_deadline=reader.flag(),
        guest=reader.optional(read_guest),
    )
    if member.given_in.keys() != member.assigned | member.giving_up:
        raise DataDamaged(f"the partitions of the stored member {id!r} contradict each other")
    return member


def _write_identity(writer: FieldWriter, member: ClassicMemberSnapshot | ConsumerMemberSnapshot) -> None:
    writer.text(member.id)
    writer.optional(member.instance, writer.text)
    writer.text(member.client.id)
    writer.text(member.client.host)


def _read_identity(reader: FieldReader) -> tuple[MemberId, InstanceId | None, MemberClient]:
    id = MemberId(reader.text())
    instance = reader.optional(reader.text)
    client = MemberClient(id=reader.text(), host=reader.text())
    return id, None if instance is None else InstanceId(instance), client


def _id(text: str | None) -> MemberId | None:
    return None if text is None else MemberId(text)


def _write_protocols(writer: FieldWriter, protocols: Iterable[OfferedProtocol]) -> None:
    def write(protocol: OfferedProtocol) -> None:
        writer.text(protocol.name)
        writer.bytes(protocol.metadata)

    writer.list(protocols, write)


def _read_protocols(reader: FieldReader) -> tuple[OfferedProtocol, ...]:
    found = reader.list(lambda: OfferedProtocol(name=reader.text(), metadata=reader.bytes()))
    if not found:
        raise DataDamaged("a stored member offers no protocol")
    return found


def _partition(partition: PartitionId) -> bytes:
    return partition.topic + partition.index.to_bytes(_INDEX, "big")


def _read_partition(reader: FieldReader) -> PartitionId:
    topic = TopicId(reader.fixed(_TOPIC_ID))
    return PartitionId(topic, int.from_bytes(reader.fixed(_INDEX), "big"))


def _read_progress(reader: FieldReader) -> ConsumerMemberState:
    [number] = reader.fixed(1)
    if number not in _PROGRESS_OF:
        raise DataDamaged(f"a stored member has the progress {number}")
    return _PROGRESS_OF[number]
