"""State by shard and by owner, as a broker that takes a scope reads it."""

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
