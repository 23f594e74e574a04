"""Stored members of groups: what was written is read, and damage is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.groups.classic_snapshot import ClassicMemberSnapshot, ClassicSnapshot
from posthouse.broker.groups.consumer_member import ConsumerMemberState, Guest
from posthouse.broker.groups.consumer_snapshot import ConsumerMemberSnapshot, ConsumerSnapshot
from posthouse.broker.groups.membership import MemberClient, OfferedProtocol
from posthouse.broker.groups.snapshot_format import StoredSnapshot, decoded_snapshot, encoded_snapshot
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId
from posthouse.storage.owners import owner_of
from posthouse.storage.spaces import Space

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.integers(0, 2**31 - 1)
SECONDS = st.floats(0, 1e6)
CLIENTS = st.builds(MemberClient, id=TEXT, host=TEXT)
INSTANCES = st.none() | TEXT.map(InstanceId)
PROTOCOLS = st.lists(
    st.builds(OfferedProtocol, name=TEXT, metadata=st.binary(max_size=9)), min_size=1, max_size=3
).map(tuple)
TOPICS = st.binary(min_size=16, max_size=16).map(TopicId)
PARTITIONS = st.builds(PartitionId, TOPICS, NUMBERS)
SETS = st.frozensets(PARTITIONS, max_size=4)


def unique(members: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(members, min_size=1, max_size=4, unique_by=lambda each: each.id).map(tuple)  # type: ignore[attr-defined]


CLASSIC_MEMBERS = st.builds(
    ClassicMemberSnapshot,
    id=TEXT.map(MemberId),
    instance=INSTANCES,
    client=CLIENTS,
    session_seconds=SECONDS,
    rebalance_seconds=SECONDS,
    assignment=st.binary(max_size=20),
    protocols=PROTOCOLS,
)
CLASSIC = st.builds(
    ClassicSnapshot,
    generation=NUMBERS,
    protocol_type=TEXT,
    protocol=TEXT,
    leader=st.none() | TEXT.map(MemberId),
    is_stable=st.booleans(),
    members=unique(CLASSIC_MEMBERS),
)


@st.composite
def consumer_members(draw: st.DrawFn) -> ConsumerMemberSnapshot:
    assigned, giving_up = draw(SETS), draw(SETS)
    return ConsumerMemberSnapshot(
        id=MemberId(draw(TEXT)),
        instance=draw(INSTANCES),
        client=draw(CLIENTS),
        rack=draw(st.none() | TEXT),
        rebalance_seconds=draw(SECONDS),
        topics=draw(st.frozensets(TEXT, max_size=3)),
        pattern=draw(st.none() | TEXT),
        assignor=draw(st.none() | TEXT),
        epoch=draw(st.integers(-2, 2**31 - 1)),
        previous_epoch=draw(st.integers(-2, 2**31 - 1)),
        progress=draw(st.sampled_from(ConsumerMemberState)),
        target=draw(SETS),
        assigned=assigned,
        giving_up=giving_up,
        given_in={each: draw(NUMBERS) for each in assigned | giving_up},
        has_deadline=draw(st.booleans()),
        guest=draw(st.none() | st.builds(Guest, protocols=PROTOCOLS, session_seconds=SECONDS)),
    )


CONSUMER = st.builds(
    ConsumerSnapshot,
    epoch=NUMBERS,
    target_epoch=NUMBERS,
    session_seconds=SECONDS,
    topics=st.dictionaries(TOPICS, NUMBERS, max_size=3),
    members=unique(consumer_members()),
)
STORED = st.builds(StoredSnapshot, stored_ms=st.integers(0, 2**62), group=CLASSIC | CONSUMER)


@given(STORED)
def test_what_was_stored_is_read(stored: StoredSnapshot) -> None:
    assert decoded_snapshot(encoded_snapshot(stored)) == stored


@given(STORED, st.data())
def test_a_value_that_ends_too_early_is_damaged(stored: StoredSnapshot, data: st.DataObject) -> None:
    value = encoded_snapshot(stored)
    with pytest.raises(DataDamaged):
        decoded_snapshot(value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(DataDamaged):
        decoded_snapshot(value + b"\0")


@given(STORED, st.data())
def test_a_changed_value_is_read_or_damaged(stored: StoredSnapshot, data: st.DataObject) -> None:
    """Never anything else: no other exception, and no endless list."""
    value = bytearray(encoded_snapshot(stored))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded_snapshot(bytes(value))
    except DataDamaged:
        return


@given(CLASSIC)
def test_a_form_that_is_not_known(group: ClassicSnapshot) -> None:
    value = encoded_snapshot(StoredSnapshot(stored_ms=1, group=group))
    for form in (b"\2\1", b"\1\3", b"\0\0"):
        with pytest.raises(DataDamaged, match="unknown form"):
            decoded_snapshot(form + value[2:])


@given(CLASSIC_MEMBERS)
def test_members_without_sense(member: ClassicMemberSnapshot) -> None:
    for members, protocol in (((), "range"), ((member, member), "range"), ((member,), None)):
        group = ClassicSnapshot(
            generation=1,
            protocol_type="consumer",
            protocol=protocol,
            leader=None,
            is_stable=True,
            members=members,
        )
        with pytest.raises(DataDamaged):
            decoded_snapshot(encoded_snapshot(StoredSnapshot(stored_ms=1, group=group)))


def test_a_group_owns_its_members() -> None:
    assert owner_of(Space.GROUP_MEMBERS, "grüppe".encode()) == "grüppe".encode()
