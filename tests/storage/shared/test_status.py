"""What `posthouse storage status` shows."""

from uuid import uuid4

from posthouse.model.address import Address
from posthouse.model.clock import ManualClock
from posthouse.model.scopes import COORDINATOR, GROUPS, HOUSEKEEPING, NAMESPACES, TRANSACTIONS
from posthouse.storage.shared.administration.status import read_status
from posthouse.storage.shared.membership.cluster_control import DatabaseControl
from posthouse.storage.shared.membership.lease import take_lease
from posthouse.storage.shared.membership.loss_watch import Seen
from posthouse.storage.shared.membership.registry import BrokerRegistry, Registration
from posthouse.storage.shared.membership.scopes import Scopes
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill


async def registered(logs: SharedLogs, name: str) -> BrokerRegistry:
    addresses = {"kafka": Address("127.0.0.1", 9092)}
    registration = Registration(name=name, incarnation=uuid4(), addresses=addresses, rack="a", version="1.0")
    registry = BrokerRegistry(logs.database, registration)
    await registry.register()
    return registry


async def test_roles_of_brokers(logs: SharedLogs, clock: ManualClock) -> None:
    one, two, three = [await registered(logs, name) for name in ("one", "two", "three")]
    await one.stop()
    await logs.release_lease()
    held = await take_lease(logs.database, two._registration.incarnation, clock=clock)
    assert held is not None
    scopes = Scopes(logs.database, held, Seen)
    await scopes.take([COORDINATOR])
    await DatabaseControl(logs.database).drain("three", is_draining=True)
    found = await read_status(logs.connection)
    assert [(each.name, each.role) for each in found.brokers] == [
        ("one", "gone"),
        ("two", "coordinator"),
        ("three", "member"),
    ]
    assert [each.is_draining for each in found.brokers] == [False, False, True]
    assert found.brokers[0].seconds_since_seen is None
    assert found.brokers[1].addresses == {"kafka": "127.0.0.1:9092"}
    assert (found.lease.holder, found.lease.epoch) == ("two", held.scopes[COORDINATOR])
    assert 0 < found.lease.seconds_left <= 8
    assert found.unfinished_import is None
    await held.release()
    lease = (await read_status(logs.connection)).lease
    assert (lease.holder, lease.seconds_left) == (None, 0)
    await scopes.close()
    for registry in (two, three):
        await registry.stop()


async def test_leases_and_scopes_without_a_live_broker(logs: SharedLogs, clock: ManualClock) -> None:
    one, two, three, four = [await registered(logs, name) for name in ("one", "two", "three", "four")]
    await logs.release_lease()
    held = [
        await take_lease(logs.database, each._registration.incarnation, clock=clock)
        for each in (one, two, three)
    ]
    leases = [each for each in held if each is not None]
    assert len(leases) == 3
    scopes = [Scopes(logs.database, each, Seen) for each in leases]
    await scopes[0].take([COORDINATOR, *GROUPS[:2]])
    await scopes[1].take(GROUPS[3:5])
    again = await registered(logs, "two")
    for registry in (one, two, three, four, again):
        await registry.stop()
    await logs.connection.execute(
        "UPDATE posthouse.lease SET until = '-infinity' WHERE holder <> %s", [one._registration.incarnation]
    )

    found = await read_status(logs.connection)
    assert {each.role for each in found.brokers} == {"gone"}
    earlier = str(two._registration.incarnation)
    assert [(each.holder, each.epoch, list(each.scopes)) for each in found.leases] == [
        ("one", leases[0].epoch, ["coordinator", "groups/00", "groups/01"]),
        (earlier, leases[1].epoch, ["groups/03", "groups/04"]),
    ], "three has neither time nor scopes"
    assert 0 < found.leases[0].seconds_left <= 8
    assert found.leases[1].seconds_left == 0
    free = (*GROUPS[5:], *HOUSEKEEPING, *NAMESPACES, *TRANSACTIONS)
    assert found.free_scopes == ["groups/02", *(each.name for each in free)]
    for each in scopes:
        await each.close()
    for lease in leases:
        await lease.release()


async def test_tail_segments_and_objects(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)
    await fill(logs, log, 6)
    await fill(logs, other, 3)
    before = await read_status(logs.connection)
    assert (before.logs.topics, before.logs.logs) == (1, 2)
    assert (before.logs.tail_runs, before.logs.segments) == (9, 0)
    assert before.logs.tail_bytes == before.logs.bytes > 0
    assert before.logs.consolidation_lag_seconds > 0, "the clock of the test is far in the past"
    assert (before.objects.live, before.objects.doomed) == (3, 0)
    assert [(each.state, each.runs) for each in before.slots[:2]] == [("open", 9), ("free", 0)]
    await consolidation(logs).consolidate([log])
    after = await read_status(logs.connection)
    assert (after.logs.tail_runs, after.objects.doomed, after.objects.held) == (3, 2, 0)
    assert after.logs.segments > 0 and after.logs.segment_bytes > 0
    assert after.logs.bytes == before.logs.bytes
    assert after.database_bytes > 0
