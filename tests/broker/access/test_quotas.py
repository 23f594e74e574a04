"""Quotas: whose counts, how long somebody waits, and that nobody gets more than its rate."""

import math
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.access import quotas as quotas_module
from posthouse.broker.access.quotas import DEFAULT, Entity, Quota, Quotas, Who
from posthouse.broker.access.token_bucket import MAX_DELAY, TokenBucket
from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidQuota
from posthouse.model.usage import Limited, Use
from posthouse.storage.memory.engine import MemoryStorage


def quotas_of(clock: ManualClock) -> Quotas:
    return Quotas(MemoryStorage(clock), clock)


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3 * 10**9)), min_size=1, max_size=30),
)
def test_a_bucket(rate: int, steps: list[tuple[int, int]]) -> None:
    """A level that fills up to a second's worth. It may be owed, but not for longer than a while."""
    bucket = TokenBucket(float(rate), 0.0)
    level, now = float(rate), 0.0
    for waited_ms, amount in steps:
        now += waited_ms / 1000
        level = min(float(rate), level + rate * waited_ms / 1000) - amount
        expected = min(max(0.0, -level) / rate, MAX_DELAY)
        assert bucket.take(float(amount), now) == pytest.approx(expected, abs=1e-6, rel=1e-6)
        level = max(level, -rate * MAX_DELAY)


@given(st.integers(100, 10**6), st.lists(st.integers(0, 10**6), min_size=1, max_size=60))
def test_whoever_waits_as_told_gets_no_more_than_the_rate(rate: int, amounts: list[int]) -> None:
    bucket = TokenBucket(float(rate), 0.0)
    now = taken = 0.0
    for amount in amounts:
        # What is larger than the greatest debt is forgiven; clients do not send that much at once.
        amount = min(amount, rate * int(MAX_DELAY - 1))
        taken += amount
        now += bucket.take(float(amount), now)
        assert taken <= rate * (now + 1) + 1e-3


def test_what_was_not_used_is_not_saved_up() -> None:
    bucket = TokenBucket(10.0, 0.0)
    assert bucket.take(10.0, 3600.0) == 0
    assert bucket.take(10.0, 3600.0) == 1.0
    assert bucket.take(0.0, 3601.0) == 0


USERS: tuple[Who, ...] = ("ann", DEFAULT, None)
CLIENTS: tuple[Who, ...] = ("tool", DEFAULT, None)
# As Kafka's documentation lists them, the most exact first.
ORDER = [
    Entity("ann", "tool"),
    Entity("ann", DEFAULT),
    Entity("ann"),
    Entity(DEFAULT, "tool"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(None, "tool"),
    Entity(None, DEFAULT),
]


@given(st.sets(st.sampled_from(ORDER)), st.sampled_from(Quota))
async def test_the_most_exact_one_counts(present: set[Entity], quota: Quota) -> None:
    clock = ManualClock()
    quotas = quotas_of(clock)
    for entity in present:
        await quotas.change(entity, {quota: float(1 + ORDER.index(entity))})
    first = next((entity for entity in ORDER if entity in present), None)
    waits = quotas.take(quota, "ann", "tool", 20.0)
    if first is None:
        assert waits == 0
        return
    rate = 1 + ORDER.index(first)
    rate_a_second = rate / 100 if quota is Quota.TIME else rate
    assert waits == pytest.approx(min((20 - rate_a_second) / rate_a_second, MAX_DELAY))
    for other in Quota:
        if other is not quota:
            assert quotas.take(other, "ann", "tool", 1e12) == 0


async def test_who_shares_with_whom() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock)
    await quotas.change(Entity("ann"), {Quota.WRITTEN: 10.0})
    assert quotas.take(Quota.WRITTEN, "ann", "one", 10.0) == 0
    assert quotas.take(Quota.WRITTEN, "ann", "two", 10.0) == 1.0  # the same user
    await quotas.change(Entity(DEFAULT), {Quota.WRITTEN: 10.0})
    assert quotas.take(Quota.WRITTEN, "ben", "one", 10.0) == 0
    assert quotas.take(Quota.WRITTEN, "cat", "one", 10.0) == 0  # each has the default, not all together
    assert quotas.take(Quota.WRITTEN, "cat", "two", 5.0) == 0.5
    await quotas.change(Entity(DEFAULT, DEFAULT), {Quota.WRITTEN: 10.0})
    assert quotas.take(Quota.WRITTEN, "cat", "one", 10.0) == 0
    assert quotas.take(Quota.WRITTEN, "cat", "two", 10.0) == 0
    assert quotas.take(Quota.WRITTEN, "cat", "two", 10.0) == 1.0


async def test_time_brings_it_back() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock)
    await quotas.change(Entity("ann"), {Quota.READ: 100.0})
    assert quotas.take(Quota.READ, "ann", "", 300.0) == 2.0
    clock.advance(1.0)
    assert quotas.take(Quota.READ, "ann", "", 0.0) == 1.0
    clock.jump(10**9)  # the wall clock has nothing to do with it
    assert quotas.take(Quota.READ, "ann", "", 0.0) == 1.0
    clock.advance(1.0)
    assert quotas.take(Quota.READ, "ann", "", 0.0) == 0


async def test_a_quota_that_is_gone() -> None:
    quotas = quotas_of(ManualClock())
    assert quotas.is_empty
    await quotas.change(Entity("ann"), {Quota.READ: 1.0, Quota.WRITTEN: 1.0})
    assert not quotas.is_empty
    assert quotas.take(Quota.READ, "ann", "", 2.0) == 1.0
    await quotas.change(Entity("ann"), {Quota.READ: None})
    assert quotas.take(Quota.READ, "ann", "", 1e9) == 0
    assert dict(quotas) == {Entity("ann"): {Quota.WRITTEN: 1.0}}
    await quotas.change(Entity("ann"), {Quota.WRITTEN: None})
    assert quotas.is_empty


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, -math.inf])
async def test_rates_that_make_no_sense(rate: float) -> None:
    quotas = quotas_of(ManualClock())
    with pytest.raises(InvalidQuota):
        await quotas.change(Entity("ann"), {Quota.READ: 1.0, Quota.WRITTEN: rate})
    assert quotas.is_empty
    with pytest.raises(InvalidQuota):
        await quotas.change(Entity(), {Quota.READ: 1.0})


async def test_trying_changes_nothing() -> None:
    quotas = quotas_of(ManualClock())
    await quotas.change(Entity("ann"), {Quota.READ: 1.0}, validate_only=True)
    assert quotas.is_empty


async def test_names_that_clients_make_up_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "_MAX_BUCKETS", 10)
    quotas = quotas_of(ManualClock())
    await quotas.change(Entity(DEFAULT, DEFAULT), {Quota.READ: 1.0})
    for number in range(100):
        assert quotas.take(Quota.READ, "ann", str(number), 2.0) == 1.0
        assert len(quotas._found) <= 10
        assert len(quotas._buckets) <= 10


async def test_nobody_gets_rid_of_a_debt_by_being_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_module, "_MAX_BUCKETS", 10)
    quotas = quotas_of(ManualClock())
    await quotas.change(Entity("ann"), {Quota.READ: 1.0})
    assert quotas.take(Quota.READ, "ann", "reports", 21.0) == 20.0
    for number in range(100):
        quotas.take(Quota.READ, "ann", str(number), 0.0)
    assert quotas.take(Quota.READ, "ann", "reports", 0.0) == 20.0


async def test_long_client_ids_take_no_memory() -> None:
    quotas = quotas_of(ManualClock())
    long = "x" * 32_000
    await quotas.change(Entity(None, long), {Quota.READ: 1.0})
    assert quotas.take(Quota.READ, "ann", long, 2.0) == 1.0
    assert quotas.take(Quota.READ, "ben", long, 2.0) == 3.0
    assert quotas.take(Quota.READ, "ben", long + "y", 2.0) == 0.0
    assert max(len(client) for _, client in quotas._found) <= 256
    assert all(len(str(entity.client)) <= 256 for _, entity in quotas._buckets)


@given(st.sampled_from(["ann", "default", '{"default": true}', "é", DEFAULT, None]), st.sampled_from(CLIENTS))
def test_keys(user: Who, client: Who) -> None:
    entity = Entity(user, client)
    assert Entity.from_key(entity.key()) == entity


async def test_brokers_share_byte_rates() -> None:
    clock = ManualClock()
    others: list[UUID] = []
    quotas = Quotas(MemoryStorage(clock), clock, ClusterUsage(b"secret", clock, lambda: others))
    await quotas.change(Entity("ann"), {Quota.WRITTEN: 120.0, Quota.TIME: 50.0})
    assert quotas.take(Quota.WRITTEN, "ann", "", 120.0) == 0.0
    assert quotas.take(Quota.READ, "ann", "", 1e9) == 0.0
    others.extend([uuid4(), uuid4()])
    clock.advance(60.0)
    assert quotas.take(Quota.WRITTEN, "ann", "", 40.0) == 0.0
    assert quotas.take(Quota.WRITTEN, "ann", "", 40.0) == 1.0
    assert quotas.take(Quota.TIME, "ann", "", 1.0) == 1.0, "half of the time of each broker"


async def test_others_are_told_who_uses_much_of_its_rate() -> None:
    clock = ManualClock()
    quotas = quotas_of(clock)
    await quotas.change(Entity(DEFAULT), {Quota.WRITTEN: 100.0, Quota.READ: 1000.0, Quota.TIME: 50.0})
    quotas.take(Quota.WRITTEN, "ann", "", 10.0)
    quotas.take(Quota.READ, "ann", "", 10.0)
    quotas.take(Quota.READ, "ben", "", 9000.0)
    quotas.take(Quota.TIME, "ben", "", 9.0)
    clock.advance(2.0)
    told = {(each.kind, each.name): each for each in quotas.uses(0.04)}
    ann, ben = Entity("ann").key().decode(), Entity("ben").key().decode()
    assert told == {
        (Limited.WRITTEN, ann): Use(Limited.WRITTEN, ann, 5.0, 100.0, wants_more=False),
        (Limited.READ, ben): Use(Limited.READ, ben, 4500.0, 1000.0, wants_more=True),
    }
    clock.advance(60.0)
    assert list(quotas.uses(0.04)) == []
