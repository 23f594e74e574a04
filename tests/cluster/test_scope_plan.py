"""The plan: even, deterministic, and with no move that is not needed."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from posthouse.cluster.scope_plan import may_coordinate, plan_scopes
from posthouse.model.scopes import (
    COORDINATOR,
    GROUPS,
    HOUSEKEEPING,
    NAMESPACES,
    SCOPES,
    SPREAD,
    TRANSACTIONS,
    Scope,
)
from tests.cluster.scope_views import cluster_view

brokers = st.sets(st.integers(1, 12), min_size=1, max_size=8)
ids = st.integers(1, 12)
spread = [*GROUPS, *TRANSACTIONS, *NAMESPACES, *HOUSEKEEPING]
held = st.dictionaries(st.sampled_from(spread), ids)
"""By live brokers and by dead ones; the others are free."""
pins = st.dictionaries(st.sampled_from(SCOPES), ids, max_size=80)
kinds = st.sampled_from(list(SPREAD.values()))


def planned(live: set[int], holding: Mapping[Scope, int], **more: object) -> Mapping[Scope, int]:
    return plan_scopes(cluster_view(live, holding, **more)).holders  # type: ignore[arg-type]


def of_kind(plan: Mapping[Scope, int], kind: Sequence[Scope]) -> dict[Scope, int]:
    return {scope: broker for scope, broker in plan.items() if scope in kind}


def moves(before: Mapping[Scope, int], after: Mapping[Scope, int]) -> dict[Scope, tuple[int, int]]:
    return {each: (before[each], after[each]) for each in before if before[each] != after[each]}


@given(brokers, held, kinds)
def test_every_scope_has_a_broker_and_no_broker_two_more_of_a_kind_than_another(
    live: set[int], holding: dict[Scope, int], kind: Sequence[Scope]
) -> None:
    found = of_kind(planned(live, holding), kind)
    assert set(found) == set(kind)
    counts = Counter(found.values())
    assert max(counts.values()) - min(counts[each] for each in live) <= 1
    assert set(counts) <= live


@given(brokers, held, pins, kinds)
def test_kinds_do_not_move_each_other(
    live: set[int], holding: dict[Scope, int], wanted: dict[Scope, int], kind: Sequence[Scope]
) -> None:
    alone = planned(live, of_kind(holding, kind), wanted=of_kind(wanted, kind))
    assert of_kind(planned(live, holding, wanted=wanted), kind) == of_kind(alone, kind)


@given(brokers, held)
def test_all_brokers_find_the_same(live: set[int], holding: dict[Scope, int]) -> None:
    shuffled = sorted(live, reverse=True)
    assert (
        planned(live, holding) == plan_scopes(cluster_view(shuffled, dict(reversed(holding.items())))).holders
    )


@given(brokers)
def test_what_is_spread_evenly_stays(live: set[int]) -> None:
    once = planned(live, {})
    assert planned(live, once) == once


@given(brokers, held, kinds)
def test_only_brokers_with_too_many_give_any_away(
    live: set[int], holding: dict[Scope, int], kind: Sequence[Scope]
) -> None:
    holding = of_kind({scope: broker for scope, broker in holding.items() if broker in live}, kind)
    after = of_kind(planned(live, holding), kind)
    counts, shares = Counter(holding.values()), Counter(after.values())
    given_away = Counter(holding[each] for each in holding if after[each] != holding[each])
    assert given_away == Counter(
        {each: counts[each] - shares[each] for each in live if counts[each] > shares[each]}
    )


@given(brokers, st.data())
def test_a_broker_that_joins_gets_its_share_and_nothing_else_moves(
    live: set[int], data: st.DataObject
) -> None:
    joined = data.draw(ids.filter(lambda each: each not in live))
    before = planned(live, {})
    moved = moves(before, planned(live | {joined}, before))
    assert {to for _, to in moved.values()} <= {joined}
    for kind in SPREAD.values():
        assert len([scope for scope in moved if scope in kind]) == len(kind) // (len(live) + 1)


@given(brokers.filter(lambda live: len(live) > 1), st.data())
def test_only_the_scopes_of_a_broker_that_leaves_move(live: set[int], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(live)))
    before = planned(live, {})
    left = moves(before, planned(live - {gone}, before))
    drained = moves(before, planned(live, before, draining={gone}))
    assert left == drained
    assert set(left) == {scope for scope, broker in before.items() if broker == gone}


@given(brokers, held, pins, st.sets(ids), st.data())
def test_the_plan_stays_while_it_is_carried_out(
    live: set[int],
    holding: dict[Scope, int],
    wanted: dict[Scope, int],
    draining: set[int],
    data: st.DataObject,
) -> None:
    plan = planned(live, holding, wanted=wanted, draining=draining)
    now = dict(holding)
    todo = [scope for scope in spread if now.get(scope) != plan[scope]]
    for scope in data.draw(st.lists(st.sampled_from(todo), unique=True)) if todo else []:
        now.pop(scope, None)
        if data.draw(st.booleans()):
            now[scope] = plan[scope]
    assert planned(live, now, wanted=wanted, draining=draining) == plan


@given(brokers, held, pins, kinds)
def test_what_is_wanted_wins_and_the_rest_is_even(
    live: set[int], holding: dict[Scope, int], wanted: dict[Scope, int], kind: Sequence[Scope]
) -> None:
    found = of_kind(planned(live, holding, wanted=wanted), kind)
    fixed = {scope: broker for scope, broker in wanted.items() if broker in live and scope in kind}
    assert {scope: found[scope] for scope in fixed} == fixed
    counts, pinned = Counter(found.values()), Counter(fixed.values())
    lowest = min(counts[each] for each in live)
    assert all(counts[each] <= max(lowest + 1, pinned[each]) for each in live)


@given(brokers, held, st.sets(ids))
def test_a_draining_broker_gets_nothing_unless_all_are(
    live: set[int], holding: dict[Scope, int], draining: set[int]
) -> None:
    found = planned(live, holding, draining=draining)
    assert set(found.values()) <= ((live - draining) or live)


@given(brokers, held, st.sets(ids))
def test_a_broker_without_a_lease_gets_nothing(
    live: set[int], holding: dict[Scope, int], lapsed: set[int]
) -> None:
    assert planned(live, holding, lapsed=lapsed) == planned(live - lapsed, holding)


def test_nothing_is_planned_without_brokers() -> None:
    assert plan_scopes(cluster_view((), {GROUPS[0]: 1})).holders == {}


def test_who_may_coordinate() -> None:
    def found(seconds: float = 0, **more: object) -> set[int]:
        view = cluster_view((1, 2, 3), {}, **more)  # type: ignore[arg-type]
        return {each for each in (1, 2, 3) if may_coordinate(view, each, seconds=seconds)}

    assert found() == {1, 2, 3}
    assert found(draining=(2,)) == {1, 3}
    assert found(draining=(1, 2, 3)) == {1, 2, 3}
    assert found(wanted={COORDINATOR: 3}) == {3}
    assert found(wanted={COORDINATOR: 3}, draining=(3,)) == {1, 2}
    assert found(wanted={COORDINATOR: 4}) == {1, 2, 3}
    assert found(wanted={COORDINATOR: 3}, lapsed=(3,)) == {1, 2, 3}
    assert found(wanted={COORDINATOR: 3}, young=(3,), seconds=5) == {1, 2, 3}
    assert found(draining=(2,), young=(1, 3), seconds=5) == {1, 2, 3}
    assert may_coordinate(cluster_view((), {}), 1)


def test_the_scopes_of_one_broker() -> None:
    plan = plan_scopes(cluster_view((1, 2), {}))
    assert plan.of(1) | plan.of(2) == set(spread)
    for broker in (1, 2):
        assert Counter(scope.kind for scope in plan.of(broker)) == {
            "groups": 32,
            "transactions": 32,
            "namespaces": 8,
            "housekeeping": 8,
        }
