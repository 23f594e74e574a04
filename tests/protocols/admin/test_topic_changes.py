"""Topics changed by HTTP: settings, partitions, trimming."""

from typing import Any

import httpx

from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client

TOPIC = "/v1/topics/orders"


async def _topic(http: httpx.AsyncClient, **settings: str) -> None:
    body = {"name": "orders", "partitions": 2, "settings": settings}
    answered(await http.post("/v1/topics", json=body), 201)


async def _setting(http: httpx.AsyncClient, name: str) -> dict[str, Any]:
    settings = answered(await http.get(f"{TOPIC}/settings"))["settings"]
    [found] = [each for each in settings if each["name"] == name]
    assert isinstance(found, dict)
    return found


async def test_settings_are_shown_with_their_meaning_and_changed() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, **{"retention.ms": "1000", "segment.ms": "5000"})
        before = await _setting(http, "retention.ms")
        assert (before["value"], before["is_default"]) == ("1000", False)
        assert "kept" in before["meaning"]
        assert (await _setting(http, "cleanup.policy"))["is_default"]
        change = {"retention.ms": None, "cleanup.policy": "compact,delete"}
        answered(await http.patch(f"{TOPIC}/settings", json=change))
        assert (await _setting(http, "retention.ms"))["is_default"]
        assert (await _setting(http, "cleanup.policy"))["value"] == "compact,delete"
        assert (await _setting(http, "segment.ms"))["value"] == "5000"
        assert (await _setting(http, "min.insync.replicas"))["meaning"].startswith("No effect")


async def test_wrong_settings_change_nothing() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        for change in ({"retention.ms": "soon"}, {"colour": "red"}, {"retention.ms": 7}, ["retention.ms"]):
            answered(await http.patch(f"{TOPIC}/settings", json=change), 400)
        answered(await http.patch("/v1/topics/none/settings", json={}), 404)
        assert (await _setting(http, "retention.ms"))["is_default"]


async def test_partitions_are_added_and_never_removed() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        grown = answered(await http.post(f"{TOPIC}/partitions", json={"partitions": 5}))
        assert len(grown["partitions"]) == 5
        problem = answered(await http.post(f"{TOPIC}/partitions", json={"partitions": 3}), 400)
        assert "not an increase" in problem["detail"]


async def test_trimming_moves_the_start() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        records = [{"value": str(each), "partition": each % 2} for each in range(10)]
        answered(await http.post(f"{TOPIC}/records", json={"records": records}))
        trimmed = answered(await http.post(f"{TOPIC}/trim", json={"partition": 1, "before": 3}))
        assert trimmed["partitions"] == [{"partition": 1, "start": 3}]
        assert [each["start"] for each in answered(await http.get(TOPIC))["partitions"]] == [0, 3]
        emptied = answered(await http.post(f"{TOPIC}/trim", json={}))
        assert [each["start"] for each in emptied["partitions"]] == [5, 5]
        answered(await http.post(f"{TOPIC}/trim", json={"partition": 1, "before": 99}), 400)
        answered(await http.post(f"{TOPIC}/trim", json={"before": 1}), 400)
        answered(await http.post(f"{TOPIC}/trim", json={"partition": 7}), 404)


async def test_a_compacted_topic_is_not_trimmed() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, **{"cleanup.policy": "compact"})
        problem = answered(await http.post(f"{TOPIC}/trim", json={}), 409)
        assert "compact,delete" in problem["detail"]


async def test_changes_need_permissions_and_are_audited() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await _topic(admin)
        for method, path, body in (
            ("GET", "settings", None),
            ("PATCH", "settings", {}),
            ("POST", "partitions", {"partitions": 9}),
            ("POST", "trim", {}),
        ):
            answered(await ann.request(method, f"{TOPIC}/{path}", json=body), 403)
            answered(await admin.request(method, f"{TOPIC}/{path}", json=body))
