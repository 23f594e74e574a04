"""Permissions against a plain reading of Kafka's rules, and that a change is whole."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posthouse.broker.access import acls as acls_module
from posthouse.broker.access.acls import Acl, Acls, Pattern
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.access.principal import Principal
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidAcl, StorageFull
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.spaces import Space

_O = Operation
OPERATIONS = [
    _O.READ,
    _O.WRITE,
    _O.CREATE,
    _O.DELETE,
    _O.ALTER,
    _O.DESCRIBE,
    _O.DESCRIBE_CONFIGS,
    _O.ALTER_CONFIGS,
]
NAMES = ["a", "ab", "abc", "b", "ba", "*", "*a"]
FRESH = "z"
"""A character that no permission of the tests has."""


def acl(name: str = "a", operation: Operation = _O.READ, **fields: object) -> Acl:
    given_: dict[str, object] = {"kind": Kind.TOPIC, "principal": "User:ann"}
    return Acl(name=name, operation=operation, **(given_ | fields))  # type: ignore[arg-type]


some_acls = st.lists(
    st.builds(
        Acl,
        kind=st.sampled_from([Kind.TOPIC, Kind.GROUP]),
        name=st.sampled_from(NAMES),
        pattern=st.sampled_from(Pattern),
        principal=st.sampled_from(["User:ann", "User:ben", "User:*"]),
        host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
        operation=st.sampled_from([_O.ALL, *OPERATIONS]),
        allow=st.booleans(),
    ).filter(
        lambda each: each.kind is Kind.TOPIC or each.operation in (_O.ALL, _O.READ, _O.DELETE, _O.DESCRIBE)
    ),
    max_size=12,
)


def concerns(each: Acl, who: str, host: str, kind: Kind, name: str) -> bool:
    literally, by_prefix = each.name in ("*", name), name.startswith(each.name)
    return (
        (literally if each.pattern is Pattern.LITERAL else by_prefix)
        and each.kind == kind
        and each.principal in (f"User:{who}", "User:*")
        and each.host in ("*", host)
    )


def model(kept: Sequence[Acl], who: str, host: str, operation: Operation, kind: Kind, name: str) -> bool:
    enough = {operation, _O.ALL}
    if operation is _O.DESCRIBE:
        enough |= {_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}
    if operation is _O.DESCRIBE_CONFIGS:
        enough |= {_O.ALTER_CONFIGS}
    mine = [each for each in kept if concerns(each, who, host, kind, name)]
    if any(not each.allow and each.operation in (operation, _O.ALL) for each in mine):
        return False
    return any(each.allow and each.operation in enough for each in mine)


async def acls_of(kept: Sequence[Acl]) -> Acls:
    made = Acls(MemoryStorage(ManualClock()))
    await made.add(kept)
    return made


@given(
    some_acls,
    st.sampled_from(["ann", "ben", "cat"]),
    st.sampled_from(["10.0.0.1", "10.0.0.3"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([*NAMES, "abcd", "c"]),
)
async def test_the_rules(kept: list[Acl], who: str, host: str, operation: Operation, name: str) -> None:
    acls = await acls_of(kept)
    for kind in (Kind.TOPIC, Kind.GROUP):
        expected = model(kept, who, host, operation, kind, name)
        assert acls.allow(Principal(who), host, operation, kind, name) == expected


@example(
    [acl("*", pattern=Pattern.PREFIXED), acl("*", pattern=Pattern.PREFIXED, allow=False)], "ann", _O.READ
)
@given(some_acls, st.sampled_from(["ann", "cat"]), st.sampled_from(OPERATIONS))
async def test_whether_there_is_anything_to_do_it_to(kept: list[Acl], who: str, operation: Operation) -> None:
    acls = await acls_of(kept)
    names = {each.name for each in kept if each.name != "*"} | {each.name + FRESH for each in kept} | {FRESH}
    expected = any(model(kept, who, "10.0.0.1", operation, Kind.TOPIC, name) for name in names)
    assert acls.allow_some(Principal(who), "10.0.0.1", operation, Kind.TOPIC) == expected


@given(some_acls, some_acls)
async def test_removing_is_the_opposite_of_adding(kept: list[Acl], more: list[Acl]) -> None:
    acls = await acls_of(kept)
    await acls.add(more)
    assert set(acls) == {*kept, *more}
    added = set(more) - set(kept)
    assert set(await acls.remove(added.__contains__)) == added
    assert set(acls) == set(kept)
    for name in NAMES:
        assert set(acls.about(Kind.TOPIC, name)) == {
            each for each in kept if concerns(each, each.principal[5:], each.host, Kind.TOPIC, name)
        }


@given(some_acls)
def test_keys(kept: list[Acl]) -> None:
    assert [Acl.from_key(each.key()) for each in kept] == kept
    assert len({each.key() for each in kept}) == len(set(kept))


@pytest.mark.parametrize(
    "wrong",
    [
        acl(""),
        acl(host=""),
        acl(principal="ann"),
        acl(principal="User:"),
        acl(principal="Group:ann"),
        acl(operation=_O.IDEMPOTENT_WRITE),
        acl(operation=_O.CLUSTER_ACTION),
        acl(kind=Kind.GROUP, operation=_O.WRITE),
        acl(kind=Kind.TRANSACTIONAL_ID, operation=_O.READ),
        acl(kind=Kind.CLUSTER, operation=_O.ALTER),
        acl(CLUSTER, kind=Kind.CLUSTER, operation=_O.READ),
        acl(CLUSTER, kind=Kind.CLUSTER, operation=_O.ALTER, pattern=Pattern.PREFIXED),
    ],
    ids=str,
)
async def test_one_that_makes_no_sense_keeps_the_others_out(wrong: Acl) -> None:
    acls = await acls_of([])
    with pytest.raises(InvalidAcl):
        await acls.add([acl("good"), wrong])
    assert not list(acls)


async def test_every_change_has_another_version() -> None:
    acls = await acls_of([acl("a")])
    version = acls.version
    await acls.add([acl("a")])
    assert acls.version == version
    await acls.add([acl("b")])
    assert acls.version > version
    version = acls.version
    await acls.remove(lambda each: False)
    assert acls.version == version
    await acls.remove(lambda each: True)
    assert acls.version > version


async def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls_module, "_MAX_ACLS", 2)
    acls = await acls_of([acl("a")])
    with pytest.raises(InvalidAcl, match="the limit is 2"):
        await acls.add([acl("b"), acl("c")])
    await acls.add([acl("a"), acl("b")])
    assert len(acls) == 2


class SlowStorage(MemoryStorage):
    """Commits when it is told to, or fails."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.waiting: list[asyncio.Future[None]] = []
        self.puts: dict[bytes, bytes | None] = {}

    def commit(self, operations):  # type: ignore[no-untyped-def]
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)

        async def done() -> list[object]:
            await turn
            self.puts |= {each.key: each.value for each in operations if each.space is Space.ACLS}
            return []

        return asyncio.ensure_future(done())


async def test_whoever_leaves_in_the_middle_leaves_a_whole_change() -> None:
    storage = SlowStorage()
    acls = Acls(storage)
    adding = asyncio.create_task(acls.add([acl("a")]))
    removing = asyncio.create_task(acls.remove(lambda each: True))
    while not storage.waiting:
        await asyncio.sleep(0)
    adding.cancel()
    storage.waiting[0].set_result(None)
    while not list(acls):
        await asyncio.sleep(0)
    while len(storage.waiting) < 2:
        await asyncio.sleep(0)
    storage.waiting[1].set_result(None)
    assert await removing == [acl("a")]
    assert storage.puts == {acl("a").key(): None}


async def test_what_is_not_stored_does_not_count() -> None:
    storage = SlowStorage()
    acls = Acls(storage)
    adding = asyncio.create_task(acls.add([acl("a")]))
    while not storage.waiting:
        await asyncio.sleep(0)
    storage.waiting[0].set_exception(StorageFull("no room"))
    with pytest.raises(StorageFull):
        await adding
    assert not list(acls)
    assert not acls.allow(Principal("ann"), "10.0.0.1", _O.READ, Kind.TOPIC, "a")
