"""Groups by HTTP, where two brokers coordinate them: calls reach the right one, and lists have all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.app import App
from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.topics import NewTopic
from posthouse.model.ids import ARCHIVE_GROUP, GroupId, MemberId
from posthouse.model.scopes import GROUPS, NAMESPACES, Scope, scope_of_group
from posthouse.protocols.admin.handlers.groups import LISTED, GroupSummary
from posthouse.protocols.admin.paging import Page, Paging
from posthouse.settings import Authentication
from tests.protocols.admin.clients import answered
from tests.protocols.kafka.two_brokers import TwoBrokers, two_brokers

PASSWORD = "secret"


def _of(scope: Scope) -> str:
    """A group of the scope."""
    return next(name for name in map(str, range(9999)) if scope_of_group(name) == scope)


HERE, THERE = _of(GROUPS[0]), _of(GROUPS[1])
"""Groups of the coordinator, and of the member."""


@asynccontextmanager
async def _brokers(**settings: Any) -> AsyncIterator[TwoBrokers]:
    """Scopes with even numbers are at the coordinator, the others at the member."""
    async with two_brokers(**settings) as made:
        for number, scope in enumerate(GROUPS):
            await made.hold(scope, made.member if number % 2 else made.coordinator)
        for scope in NAMESPACES:
            await made.hold(scope, made.coordinator)
        await made.coordinator.broker.create_topics([NewTopic(name="t", partitions=2)])
        await made.member.broker.refresh_definitions()
        yield made


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    async with _brokers() as made:
        yield made


@pytest.fixture
async def http(brokers: TwoBrokers) -> AsyncIterator[httpx.AsyncClient]:
    async with _client(brokers.coordinator) as client:
        yield client


@asynccontextmanager
async def _client(app: App, user: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    auth = None if user is None else (user, PASSWORD)
    async with httpx.AsyncClient(base_url=f"http://{app.listeners['admin']}", auth=auth, timeout=30) as made:
        yield made


async def _commit(app: App, group: str, offset: int = 1) -> None:
    new = [NewOffset(partition=app.broker.topic("t").partition(0), offset=offset)]
    identity = MemberIdentity(member=MemberId(""))
    assert await app.broker.groups.offsets.commit(GroupId(group), identity, new) == [None]


def _committed(app: App, group: str) -> list[int | None]:
    offsets = app.broker.groups.offsets
    found = [offsets.get(GroupId(group), each) for each in app.broker.topic("t").partition_ids()]
    return [None if each is None else each.offset for each in found]


async def test_a_group_of_the_other_broker_is_described(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _commit(brokers.member, THERE, 0)
    described = answered(await http.get(f"/v1/groups/{THERE}"))
    assert (described["name"], described["kind"], described["lag"]) == (THERE, "classic", 0)
    missing = await http.get(f"/v1/groups/{_of(GROUPS[3])}")
    assert missing.status_code == 404 and missing.headers["content-type"] == "application/problem+json"
    assert len(brokers.relayed) == 2
    wrong = await http.get(f"/v1/groups/{THERE}?limit=0")
    assert wrong.status_code == 400 and len(brokers.relayed) == 2


async def test_names_and_parameters_arrive_as_they_were_sent(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    name = next(f"a/b ü%?&{n}" for n in range(99) if scope_of_group(f"a/b ü%?&{n}") in GROUPS[1::2])
    await _commit(brokers.member, name)
    described = answered(await http.get(f"/v1/groups/{_quoted(name)}", params={"limit": 1}))
    assert described["name"] == name and len(described["offsets"]) == 1


def _quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())


async def test_a_group_of_the_other_broker_is_moved_and_deleted(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    await _commit(brokers.member, THERE)
    reset = answered(await http.post(f"/v1/groups/{THERE}/reset", json={"to": "earliest", "topics": ["t"]}))
    assert [change["after"] for change in reset["changes"]] == [0, 0]
    assert _committed(brokers.member, THERE) == [0, 0]
    answered(await http.delete(f"/v1/groups/{THERE}"), 204)
    assert _committed(brokers.member, THERE) == [None, None]
    refused = await http.delete(f"/v1/groups/{THERE}")
    assert refused.status_code == 404


async def test_lists_have_the_groups_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    names = {_of(scope): number for number, scope in enumerate(GROUPS[:10])}
    for name, number in names.items():
        await _commit(brokers.member if number % 2 else brokers.coordinator, name)
    whole = answered(await http.get("/v1/groups"))
    assert [each["name"] for each in whole["items"]] == sorted(names)
    assert (whole["total"], whole["next"]) == (10, None)
    paged: list[str] = []
    after = ""
    while after is not None:
        page = answered(await http.get("/v1/groups", params={"limit": 3, "after": after}))
        assert len(page["items"]) <= 3 and page["total"] == 10
        paged += [each["name"] for each in page["items"]]
        after = page["next"]
    assert paged == sorted(names)
    assert answered(await http.get("/v1/overview"))["groups"] == 10


async def test_a_list_that_would_lack_groups_is_refused(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await brokers.member.broker.release_scope(GROUPS[1])
    brokers.view = type(brokers.view)(
        brokers=brokers.view.brokers,
        holder_incarnation=brokers.view.holder_incarnation,
        holders={scope: each for scope, each in brokers.view.holders.items() if scope != GROUPS[1]},
    )
    assert (await http.get("/v1/groups")).status_code == 503
    assert answered(await http.get(f"/v1/groups/{_of(GROUPS[2])}"), 404)


async def test_a_broker_that_is_asked_by_another_answers_for_itself(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    """The one that asks has an old view."""
    await brokers.member.broker.release_scope(GROUPS[1])
    refused = await http.get(f"/v1/groups/{THERE}")
    assert refused.status_code == 503 and "another broker" in refused.json()["detail"]


async def test_the_archive_is_shown_whoever_coordinates_its_group(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    holder = brokers.storage.scopes.holders[scope_of_group(ARCHIVE_GROUP)]
    app = brokers.member if holder is brokers.member.broker else brokers.coordinator
    await _commit(app, ARCHIVE_GROUP, 0)
    for scope_holder in (brokers.member, brokers.coordinator):
        await brokers.hold(scope_of_group(ARCHIVE_GROUP), scope_holder)
        [shown] = answered(await http.get("/v1/archive"))["items"]
        assert shown["topic"] == "t"


async def test_events_of_groups_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    async with http.stream("GET", "/v1/events", params={"kinds": "groups"}) as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        await _commit(brokers.member, THERE)
        async for line in lines:
            if line.startswith("data:") and THERE in line:
                [added] = json.loads(line.removeprefix("data:"))["added"]
                assert added["name"] == THERE
                break


# Logins


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    async with _brokers(authentication=Authentication.REQUIRED, admin_password_file=file) as made:
        access = made.coordinator.broker.access
        await access.users.set_password("ann", PASSWORD)
        await access.acls.add(
            [Acl(kind=Kind.GROUP, name=THERE, principal="User:ann", operation=Operation.DESCRIBE)]
        )
        await made.member.broker.refresh_definitions()
        yield made


async def test_calls_have_the_rights_of_the_user(guarded: TwoBrokers) -> None:
    other = _of(GROUPS[3])
    await _commit(guarded.member, THERE)
    await _commit(guarded.member, other)
    async with _client(guarded.coordinator, "admin") as http:
        assert len(answered(await http.get("/v1/groups"))["items"]) == 2
        answered(await http.get(f"/v1/groups/{other}"))
    async with _client(guarded.coordinator, "ann") as http:
        assert [each["name"] for each in answered(await http.get("/v1/groups"))["items"]] == [THERE]
        answered(await http.get(f"/v1/groups/{THERE}"))
        assert (await http.get(f"/v1/groups/{other}")).status_code == 403
        assert (await http.delete(f"/v1/groups/{THERE}")).status_code == 403


async def test_a_user_whom_the_other_broker_does_not_admit(guarded: TwoBrokers) -> None:
    """One of both is behind."""
    async with _client(guarded.coordinator, "ann") as http:
        await _commit(guarded.member, THERE)
        answered(await http.get(f"/v1/groups/{THERE}"))
        guarded.member.broker.access.users.follow({})
        assert (await http.get(f"/v1/groups/{THERE}")).status_code == 401


async def test_events_need_no_user_at_the_other_broker(guarded: TwoBrokers) -> None:
    async with (
        _client(guarded.coordinator, "admin") as http,
        http.stream("GET", "/v1/events", params={"kinds": "groups"}) as stream,
    ):
        lines = stream.aiter_lines()
        await anext(lines)
        await _commit(guarded.member, THERE)
        async for line in lines:
            if line.startswith("data:") and THERE in line:
                break


# Pages


def _summary(name: str) -> GroupSummary:
    return GroupSummary(name=name, kind="classic", state="empty", members=0, partitions=0, lag=0)


def _page(*names: str, next: str | None = None) -> Page[GroupSummary]:
    return Page(items=[_summary(name) for name in names], total=len(names), next=next)


@pytest.mark.parametrize(
    ("pages", "names", "next"),
    [
        ([_page("a", "c"), _page("b")], ["a", "b"], "b"),
        ([_page("a"), _page("b")], ["a", "b"], None),
        ([_page("a"), _page("a")], ["a"], None),
        ([_page("a", next="a"), _page()], ["a"], "a"),
        ([_page(), _page()], [], None),
    ],
)
def test_pages_are_merged(pages: list[Page[GroupSummary]], names: list[str], next: str | None) -> None:
    found = LISTED.merged(pages, Paging(limit=2))
    assert ([each.name for each in found.items], found.next) == (names, next)


async def test_limits_of_a_group_of_the_other_broker_apply_there(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    """They are settings, which the coordinator stores; the other broker follows."""
    await brokers.member.broker.subscriptions.create(GroupId(THERE))
    answered(await http.put(f"/v1/groups/{THERE}/limits", json={"rate": 20, "concurrency": 3}), 204)
    limiters = brokers.member.broker.group_limiters
    async with asyncio.timeout(30):
        while (limiter := limiters.of(GroupId(THERE))) is None:
            await brokers.member.broker.refresh_definitions()
    assert limiter.limiter.limits == DeliveryLimits(rate=20, concurrency=3)
    limits = answered(await http.get(f"/v1/groups/{THERE}"))["limits"]
    assert (limits["rate"], limits["concurrency"], limits["applies"]) == (20, 3, True)
