"""Messages for clients that have only HTTP: leased, settled, and delivered again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.broker.topics import NewTopic
from posthouse.model.ids import GroupId
from posthouse.model.scopes import GROUPS, NAMESPACES, scope_of_group
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.kafka.two_brokers import two_brokers

ORDERS = "/v1/topics/orders/records"
BILLING = "/v1/topics/orders/groups/billing"


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with client(broker) as found:
        answered(await found.post("/v1/topics", json={"name": "orders", "partitions": 2}), 201)
        yield found


async def produce(http: httpx.AsyncClient, *values: str, partition: int = 0) -> None:
    records = [{"value": each, "partition": partition} for each in values]
    answered(await http.post(ORDERS, json=records))


async def take(http: httpx.AsyncClient, group: str = "billing", **parameters: Any) -> list[dict[str, Any]]:
    path = f"/v1/topics/orders/groups/{group}/take"
    found = answered(await http.post(path, params=parameters, timeout=60))
    assert "error" not in found
    messages: list[dict[str, Any]] = found["messages"]
    return messages


def values(messages: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(each["value"] for each in messages)


def receipts(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [each["receipt"] for each in messages]


async def settle(http: httpx.AsyncClient, **body: Any) -> Any:
    return answered(await http.post(f"{BILLING}/settle", json=body))


async def test_what_is_taken_is_nobody_elses_and_what_is_settled_is_gone(http: httpx.AsyncClient) -> None:
    await produce(http, "a", "b", "c")
    await produce(http, "d", partition=1)
    first = await take(http, max=3)
    second = await take(http)
    assert values(first + second) == ["a", "b", "c", "d"]
    assert len(first) == 3
    assert await take(http) == []
    assert await settle(http, ack=receipts(first)) == {"settled": 3, "refused": []}
    assert await take(http) == []
    described = answered(await http.get("/v1/groups/billing"))
    assert (described["kind"], described["lag"]) == ("share", 1)


async def test_a_message_says_what_it_is(http: httpx.AsyncClient) -> None:
    headers = [{"name": "trace", "value": "7"}]
    answered(await http.post(ORDERS, json={"key": "k", "value": "v", "headers": headers, "timestamp": 5}))
    [message] = await take(http)
    receipt = message.pop("receipt")
    partition = message.pop("partition")
    assert message == {
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": "v",
        "headers": headers,
        "deliveries": 1,
    }
    assert receipt.startswith(f"{partition}.")


async def test_a_lease_that_ends_brings_the_message_back(http: httpx.AsyncClient) -> None:
    await produce(http, "a")
    [first] = await take(http, lease_seconds=1)
    [again] = await take(http, wait_ms=30_000)
    assert (again["value"], again["deliveries"]) == ("a", 2)
    refused = answered(await http.post(f"{BILLING}/settle", json={"ack": [first["receipt"]]}), 409)
    assert "has ended: the message is settled, or comes again" in refused["detail"]
    assert await settle(http, ack=[first["receipt"], again["receipt"]]) == {
        "settled": 1,
        "refused": [{"receipt": first["receipt"], "detail": refused["detail"]}],
    }


async def test_released_messages_come_again_at_once_or_later(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    await produce(http, "now", "later")
    taken = {each["value"]: each["receipt"] for each in await take(http)}
    await settle(http, release=[taken["later"]], delay_seconds=3600)
    await settle(http, release=[taken["now"]])
    [again] = await take(http)
    assert (again["value"], again["deliveries"]) == ("now", 2)
    await settle(http, release=[taken["later"]], delay_seconds=1)
    [later] = await take(http, wait_ms=30_000)
    assert (later["value"], later["deliveries"]) == ("later", 2)


async def test_rejected_messages_are_dead_letters(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    await produce(http, "bad", "good")
    bad, good = await take(http)
    assert bad["value"] == "bad"
    await settle(http, reject=[bad["receipt"]], ack=[good["receipt"]])
    assert await take(http) == []
    dead = answered(await http.get("/v1/topics/dlq.billing/records"))["records"]
    assert [each["value"]["data"] for each in dead] == ["bad"]


async def test_messages_that_nobody_can_do_become_dead_letters(http: httpx.AsyncClient) -> None:
    await produce(http, "poison")
    for number in range(5):
        [message] = await take(http)
        assert message["deliveries"] == number + 1
        await settle(http, release=[message["receipt"]])
    assert await take(http) == []
    dead = answered(await http.get("/v1/topics/dlq.billing/records"))["records"]
    assert [each["value"]["data"] for each in dead] == ["poison"]


async def test_a_lease_is_set_anew(http: httpx.AsyncClient) -> None:
    await produce(http, "a")
    [message] = await take(http, lease_seconds=3600)
    await settle(http, extend=[message["receipt"]], lease_seconds=1)
    [again] = await take(http, wait_ms=30_000)
    assert (again["value"], again["deliveries"]) == ("a", 2)


async def test_a_take_waits_for_messages(http: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(take(http, wait_ms=30_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await produce(http, "a")
    assert values(await waiting) == ["a"]
    assert await take(http, wait_ms=50) == []


async def test_a_client_that_goes_while_it_waits_leaves_no_lease(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    await take(http)
    with pytest.raises(httpx.ReadTimeout):
        await http.post(f"{BILLING}/take", params={"wait_ms": 30_000}, timeout=0.3)
    while len(list(broker.app.connections)) > 1:
        await asyncio.sleep(0.01)
    await produce(http, "a")
    assert values(await take(http)) == ["a"]


async def test_where_a_group_begins(http: httpx.AsyncClient) -> None:
    await produce(http, "before")
    assert await take(http, "late", begin="latest") == []
    await produce(http, "after")
    assert values(await take(http, "late")) == ["after"]
    assert values(await take(http, "early")) == ["after", "before"]


async def test_progress_is_kept_over_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        await produce(http, "a", "b")
        done, left = await take(http)
        await settle(http, ack=[done["receipt"]])
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        answered(await http.post(f"{BILLING}/settle", json={"ack": [left["receipt"]]}), 409)
        [again] = await take(http)
        assert again["value"] == left["value"]
        await settle(http, ack=[again["receipt"]])


async def test_a_topic_that_is_deleted_while_a_client_waits(http: httpx.AsyncClient) -> None:
    await take(http)
    waiting = asyncio.create_task(http.post(f"{BILLING}/take", params={"wait_ms": 30_000}, timeout=60))
    await asyncio.sleep(0.05)
    answered(await http.delete("/v1/topics/orders"), 204)
    found = answered(await waiting)
    assert found["messages"] == []
    assert "error" in found
    answered(await http.post(f"{BILLING}/take"), 404)


async def test_a_stop_answers_those_who_wait() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        await take(http)
        waiting = asyncio.create_task(take(http, wait_ms=30_000))
        await asyncio.sleep(0.05)
        await broker.app.stop()
        assert await waiting == []


@pytest.mark.parametrize(
    "receipt", ["", "x", "0.0.0", "0.0.0.0.0", "0.0.-1.1", "9.0.0.1", "0." + "9" * 20 + ".0.1"]
)
async def test_receipts_that_are_none(http: httpx.AsyncClient, receipt: str) -> None:
    await take(http)
    found = await http.post(f"{BILLING}/settle", json={"ack": [receipt]})
    assert found.status_code in (400, 404, 409), found.text


async def test_a_receipt_is_settled_once_in_a_request(http: httpx.AsyncClient) -> None:
    await produce(http, "a")
    [message] = await take(http)
    found = await settle(http, ack=[message["receipt"]], reject=[message["receipt"]])
    assert found["settled"] == 1
    assert "named twice" in found["refused"][0]["detail"]


async def test_a_group_of_another_kind_is_refused(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    answered(await http.post("/v1/groups/billing/reset", json={"topics": ["orders"], "to": "earliest"}))
    found = answered(await http.post(f"{BILLING}/take"), 409)
    assert "has committed offsets" in found["detail"]
    assert GroupId("billing") not in broker.app.broker.subscriptions
    found = answered(await http.post("/v1/topics/orders/groups/a b/take"), 400)
    assert "cannot have dead letters" in found["detail"]


async def test_a_limit_that_is_set_first_leaves_a_new_group_as_others(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    limits = {"posthouse.delivery.concurrency": "10"}
    await broker.app.broker.group_configs.replace(GroupId("billing"), limits)
    await produce(http, "early", "bad")
    taken = {each["value"]: each["receipt"] for each in await take(http)}
    assert taken.keys() == {"early", "bad"}, "it begins with what there is"
    await settle(http, reject=[taken["bad"]])
    dead = answered(await http.get("/v1/topics/dlq.billing/records"))["records"]
    assert [each["value"]["data"] for each in dead] == ["bad"]


async def test_settings_of_an_operator_stay(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    own = {"share.isolation.level": "read_uncommitted", "errors.deadletterqueue.topic.name": "dlq.all"}
    configs = broker.app.broker.group_configs
    await configs.replace(GroupId("billing"), own)
    await take(http)
    assert configs.overrides(GroupId("billing")) == own | {"share.auto.offset.reset": "earliest"}


async def test_a_group_without_dead_letters_loses_no_rejected_messages(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    await broker.app.broker.subscriptions.create(GroupId("billing"))  # as consumers of Kafka make it
    await take(http)
    await produce(http, "bad", "good")
    bad, good = await take(http)
    body = {"reject": [bad["receipt"]], "ack": [good["receipt"]]}
    found = answered(await http.post(f"{BILLING}/settle", json=body), 409)
    assert "has no topic of dead letters" in found["detail"]
    await settle(http, release=[bad["receipt"]], ack=[good["receipt"]])
    assert values(await take(http)) == ["bad"]


async def test_messages_that_wait_for_their_delay_leave_their_places_to_others(
    broker: AsyncBroker, http: httpx.AsyncClient
) -> None:
    await broker.app.broker.group_configs.replace(GroupId("billing"), {"posthouse.delivery.concurrency": "2"})
    await produce(http, "a", "b", "c", "d", "e")
    first = await take(http)
    await settle(http, release=receipts(first), delay_seconds=3600)
    await settle(http, extend=receipts(first), lease_seconds=3600)  # they are not taken again by that
    assert values(await take(http)) == ["c", "d"]
    assert await take(http) == []
    await settle(http, release=receipts(first))
    assert await take(http) == [], "c and d are in work"


async def test_dead_letters_need_the_permission_to_write_where_there_are_some() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        for name in ("orders", "dlq.billing"):
            answered(await admin.post("/v1/topics", json={"name": name, "partitions": 1}), 201)
        acls = broker.app.broker.access.acls
        for kind, name in ((Kind.TOPIC, "orders"), (Kind.GROUP, "billing"), (Kind.GROUP, "shipping")):
            await acls.add([Acl(principal="User:ann", operation=Operation.READ, kind=kind, name=name)])
        async with client(broker, "ann") as ann:
            assert "dlq.billing" in answered(await ann.post(f"{BILLING}/take"), 403)["detail"]
            assert not broker.app.broker.group_configs.overrides(GroupId("billing"))
            assert await take(ann, "shipping") == []
            write = Acl(principal="User:ann", operation=Operation.WRITE, kind=Kind.TOPIC, name="dlq.billing")
            await acls.add([write])
            assert await take(ann) == []


async def test_permissions_and_quotas() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        answered(await admin.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        await produce(admin, "x" * 50_000, "y")
        acls = broker.app.broker.access.acls
        async with client(broker, "ann") as ann:
            rights = ((Kind.TOPIC, "orders"), (Kind.GROUP, "billing"))
            for kind, name in rights:
                answered(await ann.post(f"{BILLING}/take"), 403)
                answered(await ann.post(f"{BILLING}/settle", json={}), 403)
                acl = Acl(principal="User:ann", operation=Operation.READ, kind=kind, name=name)
                await acls.add([acl])
            quotas = broker.app.broker.access.quotas
            await quotas.change(Entity("ann"), {Quota.READ: 40_000.0})
            assert len(await take(ann, max=1)) == 1
            assert quotas.throttles == 0, "nothing is held back that is leased"
            assert len(await take(ann, max=1)) == 1
            assert quotas.throttles == 1


def _of(number: int) -> str:
    return next(name for name in map(str, range(9999)) if scope_of_group(name) == GROUPS[number])


@pytest.mark.parametrize("number", [0, 1], ids=["here", "there"])
async def test_the_broker_that_holds_the_group_answers(number: int) -> None:
    group = _of(number)
    async with two_brokers() as made:
        for each, scope in enumerate(GROUPS):
            await made.hold(scope, made.member if each % 2 else made.coordinator)
        for scope in NAMESPACES:
            await made.hold(scope, made.coordinator)
        await made.coordinator.broker.create_topics([NewTopic(name="orders", partitions=2)])
        url = f"http://{made.coordinator.listeners['admin']}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            await produce(http, "a", "b", "c")
            taken = await take(http, group)
            assert values(taken) == ["a", "b", "c"]
            path = f"/v1/topics/orders/groups/{group}/settle"
            body = {"ack": receipts(taken)[:2], "reject": receipts(taken)[2:]}
            assert answered(await http.post(path, json=body)) == {"settled": 3, "refused": []}
            dead = answered(await http.get(f"/v1/topics/dlq.{group}/records"))["records"]
            assert [each["value"]["data"] for each in dead] == [taken[2]["value"]]
            assert await take(http, group, wait_ms=100) == []
            await produce(http, "late")
            assert values(await take(http, group, wait_ms=100)) == ["late"]
        holder = made.member if number else made.coordinator
        assert GroupId(group) in holder.broker.subscriptions
