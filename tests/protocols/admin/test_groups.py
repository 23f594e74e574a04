"""Groups by HTTP: every kind listed and described with its lag, moved to other offsets, deleted."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.consumer_member import Beat
from posthouse.broker.groups.membership import JoinRequest, MemberClient, MemberIdentity, OfferedProtocol
from posthouse.broker.groups.streams_member import StreamsBeat
from posthouse.broker.groups.streams_topology import Subtopology, Topology
from posthouse.model.ids import ARCHIVE_GROUP, GroupId, MemberId
from posthouse.protocols.admin.offset_targets import OffsetTarget
from posthouse.protocols.admin.problems import Problem
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.kafka.handlers import share_wire
from tests.protocols.kafka.wire import Wire

CLIENT = MemberClient(id="app", host="/10.0.0.1")
NO_MEMBER = MemberIdentity(member=MemberId(""))


async def _topic(http: httpx.AsyncClient, name: str = "t", partitions: int = 2, records: int = 10) -> None:
    answered(await http.post("/v1/topics", json={"name": name, "partitions": partitions}), 201)
    new = [
        {"value": str(each), "partition": each % partitions, "timestamp": 1000 * each}
        for each in range(records)
    ]
    answered(await http.post(f"/v1/topics/{name}/records", json={"records": new}))


async def _commit(broker: AsyncBroker, group: str, offsets: dict[int, int], topic: str = "t") -> None:
    inner = broker.app.broker
    new = [
        NewOffset(partition=inner.topic(topic).partition(index), offset=offset)
        for index, offset in offsets.items()
    ]
    await inner.groups.offsets.commit(GroupId(group), NO_MEMBER, new)


def _committed(broker: AsyncBroker, group: str, topic: str = "t") -> list[int | None]:
    inner = broker.app.broker
    found = [inner.groups.offsets.get(GroupId(group), each) for each in inner.topic(topic).partition_ids()]
    return [None if each is None else each.offset for each in found]


async def test_lag_of_a_group_without_members() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        await _commit(broker, "g", {0: 2, 1: 5})
        [listed] = answered(await http.get("/v1/groups"))["items"]
        assert listed == {
            "name": "g",
            "kind": "classic",
            "state": "empty",
            "members": 0,
            "partitions": 2,
            "lag": 3,
        }
        group = answered(await http.get("/v1/groups/g"))
        assert (group["lag"], group["members"], group["next"]) == (3, [], None)
        first = group["offsets"][0]
        assert (first["topic"], first["partition"], first["committed"]) == ("t", 0, 2)
        assert (first["start"], first["end"], first["lag"], first["member"]) == (0, 5, 3, None)


async def test_a_classic_group() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        join = JoinRequest(
            member=None,
            client=CLIENT,
            protocol_type="consumer",
            protocols=(OfferedProtocol(name="range", metadata=b""),),
            session_seconds=10,
            rebalance_seconds=10,
        )
        broker.app.broker.groups.join(GroupId("g"), join)
        group = answered(await http.get("/v1/groups/g"))
        assert (group["kind"], group["state"], group["members_total"]) == ("classic", "gathering", 1)
        assert (group["members"][0]["client"], group["members"][0]["host"]) == ("app", "/10.0.0.1")


async def test_a_consumer_group() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        beat = Beat(
            member=MemberId("m"),
            epoch=0,
            client=CLIENT,
            rebalance_seconds=10,
            topics=frozenset({"t"}),
            owned=frozenset(),
        )
        broker.app.broker.groups.beat(GroupId("g"), beat)
        group = answered(await http.get("/v1/groups/g"))
        assert (group["kind"], group["assignor"]) == ("consumer", "uniform")
        [member] = group["members"]
        assert (member["id"], member["client"], member["topics"], member["partitions"]) == (
            "m",
            "app",
            ["t"],
            2,
        )
        assert [(each["partition"], each["member"], each["lag"]) for each in group["offsets"]] == [
            (0, "m", None),
            (1, "m", None),
        ]
        [listed] = answered(await http.get("/v1/groups"))["items"]
        assert (listed["kind"], listed["members"]) == ("consumer", 1)


async def test_a_streams_group() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        topology = Topology(epoch=1, subtopologies=(Subtopology(id="0", sources=("t",)),))
        beat = StreamsBeat(
            member=MemberId("m"), epoch=0, client=CLIENT, rebalance_seconds=10, topology=topology, process="p"
        )
        broker.app.broker.groups.beat_streams(GroupId("g"), beat)
        group = answered(await http.get("/v1/groups/g"))
        assert (group["kind"], group["members"][0]["topics"]) == ("streams", ["t"])


async def test_a_share_group() -> None:
    async with AsyncBroker() as broker, client(broker) as http, Wire(broker.kafka) as wire:
        await _topic(http)
        joined = await share_wire.beat(wire, "m")
        group = answered(await http.get("/v1/groups/g"))
        assert (group["kind"], group["state"]) == ("share", "stable")
        assert [each["topics"] for each in group["members"]] == [["t"]]
        reset = {"topics": ["t"], "to": "earliest"}
        answered(await http.post("/v1/groups/g/reset", json=reset), 409)
        answered(await http.delete("/v1/groups/g"), 409)
        await share_wire.beat(wire, "m", -1, group="g")
        assert joined.member_epoch > 0
        answered(await http.post("/v1/groups/g/reset", json=reset))
        group = answered(await http.get("/v1/groups/g"))
        assert [each["committed"] for each in group["offsets"]] == [0, 0]
        assert (group["lag"], group["state"]) == (10, "empty")
        answered(await http.delete("/v1/groups/g"), 204)
        answered(await http.get("/v1/groups/g"), 404)


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", [1, 0]),
        ("latest", [5, 5]),
        ("offset:3", [3, 3]),
        ("offset:0", [1, 0]),
        ("offset:99", [5, 5]),
        ("shift:-1", [3, 1]),
        ("shift:2", [5, 4]),
        ("time:1970-01-01T00:00:05Z", [3, 2]),
        ("time:1970-01-01T01:00:05+01:00", [3, 2]),
        ("time:2100-01-01", [5, 5]),
        ("duration:PT1H", [5, 5]),
        ("duration:P100000D", [1, 0]),
    ],
)
async def test_reset(to: str, after: list[int]) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        answered(await http.post("/v1/topics/t/trim", json={"partition": 0, "before": 1}))
        await _commit(broker, "g", {0: 4, 1: 2})
        reset = {"topics": ["t"], "to": to}
        planned = answered(await http.post("/v1/groups/g/reset", json=reset | {"dry_run": True}))
        assert [(each["before"], each["after"]) for each in planned["changes"]] == [
            (4, after[0]),
            (2, after[1]),
        ]
        assert [each["lag"] for each in planned["changes"]] == [5 - each for each in after]
        assert _committed(broker, "g") == [4, 2]
        done = answered(await http.post("/v1/groups/g/reset", json=reset))
        assert (done["changes"], done["dry_run"]) == (planned["changes"], False)
        assert _committed(broker, "g") == after


async def test_a_reset_without_topics_takes_those_of_the_group() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, "t")
        await _topic(http, "u")
        await _commit(broker, "g", {1: 4})
        done = answered(await http.post("/v1/groups/g/reset", json={"to": "earliest"}))
        assert [(each["topic"], each["partition"]) for each in done["changes"]] == [("t", 1)]
        answered(await http.post("/v1/groups/none/reset", json={"to": "earliest"}), 404)


async def test_a_reset_can_prepare_a_group_that_does_not_exist() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        done = answered(await http.post("/v1/groups/new/reset", json={"topics": ["t"], "to": "latest"}))
        assert [(each["before"], each["after"]) for each in done["changes"]] == [(None, 5), (None, 5)]
        shifted = {"topics": ["t"], "to": "shift:-1"}
        assert answered(await http.post("/v1/groups/other/reset", json=shifted))["changes"] == []


async def test_a_group_with_members_is_not_moved() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        await _commit(broker, "g", {0: 2})
        beat = Beat(
            member=MemberId("m"), epoch=0, rebalance_seconds=10, topics=frozenset({"t"}), owned=frozenset()
        )
        broker.app.broker.groups.beat(GroupId("g"), beat)
        problem = answered(await http.post("/v1/groups/g/reset", json={"to": "earliest"}), 409)
        assert "has 1 member, which would commit over it" in problem["detail"]
        assert _committed(broker, "g") == [2, None]
        answered(await http.delete("/v1/groups/g"), 409)


@pytest.mark.parametrize(
    "to", ["", "soon", "offset:x", "offset:-1", "offset:99999999999999999999", "time:noon", "duration:1h"]
)
def test_places_that_make_no_sense(to: str) -> None:
    with pytest.raises(Problem) as problem:
        OffsetTarget.parse(to, 0)
    assert problem.value.status == 400


def test_a_time_in_milliseconds() -> None:
    time = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert OffsetTarget.parse("time:2026-01-31T12:00", 0).number == time.timestamp() * 1000


async def test_pages_of_partitions() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http, partitions=25, records=1)
        await _topic(http, "t-1", partitions=5, records=1)
        await _commit(broker, "g", dict.fromkeys(range(25), 0))
        await _commit(broker, "g", dict.fromkeys(range(5), 0), "t-1")
        seen: list[Any] = []
        after = ""
        while after is not None:
            found = answered(await http.get("/v1/groups/g", params={"limit": 7, "after": after}))
            assert len(found["offsets"]) <= 7
            seen += [(each["topic"], each["partition"]) for each in found["offsets"]]
            after = found["next"]
        assert seen == [*(("t", each) for each in range(25)), *(("t-1", each) for each in range(5))]


async def test_a_page_does_not_begin_after_a_very_long_number() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        await _commit(broker, "g", {0: 2})
        answered(await http.get("/v1/groups/g", params={"after": "t:" + "9" * 5000}), 400)
        for after, count in (("t:" + "9" * 200, 0), ("t:²", 1), ("x", 1)):
            found = answered(await http.get("/v1/groups/g", params={"after": after}))
            assert len(found["offsets"]) == count


async def test_a_deleted_group_is_gone() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topic(http)
        await _commit(broker, "g", {0: 2})
        answered(await http.delete("/v1/groups/g"), 204)
        answered(await http.get("/v1/groups/g"), 404)
        answered(await http.delete("/v1/groups/g"), 404)


async def test_what_a_user_sees_of_groups() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await _topic(admin)
        await _topic(admin, "hidden")
        await _commit(broker, "hers", {0: 2})
        await _commit(broker, "hers", {0: 2}, "hidden")
        await _commit(broker, "others", {0: 2})
        acls = [
            Acl(kind=kind, name=name, principal="User:ann", operation=Operation.READ)
            for kind, name in ((Kind.GROUP, "hers"), (Kind.TOPIC, "t"))
        ]
        await broker.app.broker.access.acls.add(acls)
        assert [each["name"] for each in answered(await ann.get("/v1/groups"))["items"]] == ["hers"]
        answered(await ann.get("/v1/groups/others"), 403)
        answered(await ann.delete("/v1/groups/hers"), 403)
        group = answered(await ann.get("/v1/groups/hers"))
        assert {each["topic"] for each in group["offsets"]} == {"t"}
        reset = {"topics": ["hidden"], "to": "earliest"}
        answered(await ann.post("/v1/groups/hers/reset", json=reset), 403)
        answered(await ann.post("/v1/groups/hers/reset", json={"to": "earliest"}), 403)
        answered(await ann.post("/v1/groups/hers/reset", json={"topics": ["t"], "to": "earliest"}))


async def test_the_archives_offsets_need_the_permission_to_delete() -> None:
    """They let retention delete records, so READ, which is enough for other groups, is not."""
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await _topic(admin)
        await _commit(broker, ARCHIVE_GROUP, {0: 1})
        acls = [
            Acl(kind=kind, name=name, principal="User:ann", operation=Operation.READ)
            for kind, name in ((Kind.GROUP, ARCHIVE_GROUP), (Kind.TOPIC, "t"))
        ]
        await broker.app.broker.access.acls.add(acls)
        path = f"/v1/groups/{ARCHIVE_GROUP}/reset"
        for reset in ({"to": "latest"}, {"to": "latest", "topics": ["t"]}):
            problem = answered(await ann.post(path, json=reset), 403)
            assert "allow YOU delete topic t'" in problem["detail"]
        assert _committed(broker, ARCHIVE_GROUP) == [1, None]
        may_delete = Acl(kind=Kind.TOPIC, name="t", principal="User:ann", operation=Operation.DELETE)
        await broker.app.broker.access.acls.add([may_delete])
        answered(await ann.post(path, json={"to": "latest"}))
        assert _committed(broker, ARCHIVE_GROUP) == [5, None]
