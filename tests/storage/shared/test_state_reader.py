"""State by shard and by owner, as a broker that takes a scope reads it."""

import random

from posthouse.broker.transactions.transaction import NO_PRODUCER, Transaction
from posthouse.model.ids import GroupId, TopicId
from posthouse.model.scopes import GROUP_SCOPES, shard_of
from posthouse.storage.operations import Put
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.spaces import Space


def _offset(group: str, value: bytes | None) -> Put:
    return Put(Space.OFFSETS, TopicId(bytes(16)) + bytes(4) + GroupId(group).encode(), value)


async def test_every_owner_is_in_the_shard_that_python_says(shared: SharedStorage) -> None:
    groups = [f"group {number}" for number in range(200)] + ["", "ü" * 1000]
    puts = {group: _offset(group, group.encode() or b"-") for group in groups}
    await shared.commit(list(puts.values()))
    found: dict[bytes, bytes] = {}
    for shard in range(GROUP_SCOPES):
        values = await shared.shared_state.of_shard(Space.OFFSETS, shard)
        assert {shard_of(key[20:]) for key in values} <= {shard}
        found |= values
    assert found == {put.key: put.value for put in puts.values()}


async def test_owners_are_read_alone_and_as_they_are_now(shared: SharedStorage) -> None:
    await shared.commit([_offset("a", b"1"), _offset("b", b"2"), _offset("c", b"3")])
    await shared.commit([_offset("a", b"4"), _offset("c", None)])
    state = shared.shared_state
    found = await state.of_owners(Space.OFFSETS, [b"a", b"c"])
    assert list(found.values()) == [b"4"]
    assert await state.of_owners(Space.GROUPS, [b"a"]) == {}
    assert await state.of_owners(Space.OFFSETS, []) == {}


async def test_names_that_are_longer_than_an_index_allows(shared: SharedStorage) -> None:
    group = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=30_000))
    await shared.commit([_offset(group, b"1"), _pending("tx", group)])
    state = shared.shared_state
    assert list((await state.of_owners(Space.OFFSETS, [group.encode()])).values()) == [b"1"]
    found = await state.offsets_of_groups([group.encode()])
    assert len(found.committed) == len(found.pending) == 1


def _pending(transaction: str, group: str, value: bytes | None = b"-") -> Put:
    key = TopicId(bytes(16)) + bytes(4) + group.encode()
    return Transaction(id=transaction, producer=NO_PRODUCER, timeout_ms=1, changed_ms=0).offset_put(
        key, value
    )


async def test_pending_offsets_are_found_by_their_group(shared: SharedStorage) -> None:
    """Transactional ids of all sizes are in front of it."""
    ids = ["", "t", "u" * 300]
    await shared.commit([_pending(each, "a") for each in ids] + [_pending("x", "b"), _offset("a", b"1")])
    state = shared.shared_state
    of_a = TopicId(bytes(16)) + bytes(4) + b"a"
    found = await state.offsets_of_groups([b"a"])
    assert (dict(found.committed), set(found.pending)) == ({of_a: b"1"}, {of_a})
    assert await state.offsets_of_shard(shard_of(b"a")) == found
    await shared.commit([_pending(each, "a", None) for each in ids] + [_offset("a", b"2")])
    found = await state.offsets_of_groups([b"a"])
    assert (list(found.committed.values()), set(found.pending)) == ([b"2"], set())
    assert (await state.offsets_of_groups([b"b"])).pending


async def test_keys_of_topics(shared: SharedStorage) -> None:
    one, two = TopicId(b"1" * 16), TopicId(b"2" * 16)
    keys = [topic + bytes(4) + group for topic in (one, two) for group in (b"a", b"b")]
    await shared.commit([Put(Space.OFFSETS, key, b"-") for key in keys])
    await shared.commit([Put(Space.SHARE_GROUPS, one + b"s", b"-"), Put(Space.GROUPS, one + b"g", b"-")])
    state = shared.shared_state
    assert sorted(await state.keys_of_topics(Space.OFFSETS, [one])) == keys[:2]
    assert sorted(await state.keys_of_topics(Space.OFFSETS, [two, one])) == keys
    assert await state.keys_of_topics(Space.SHARE_GROUPS, [one, two]) == [one + b"s"]
    assert await state.keys_of_topics(Space.OFFSETS, []) == []
