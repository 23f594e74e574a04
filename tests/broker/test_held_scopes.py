"""Which groups a broker serves, and when a scope is free of work."""

import asyncio

import pytest

from posthouse.broker.held_scopes import OF_GROUPS, HeldScopes
from posthouse.model.errors import CoordinatorLoading, NotCoordinator
from posthouse.model.ids import GroupId
from posthouse.model.scopes import COORDINATOR, GROUPS, Scope, scope_of_group

GROUP = GroupId("g")
SCOPE = scope_of_group(GROUP)
OTHER = next(each for each in GROUPS if each != SCOPE)


@pytest.fixture
def held() -> HeldScopes:
    return HeldScopes(OF_GROUPS, has_all=False)


def test_a_broker_that_is_alone_holds_all() -> None:
    held = HeldScopes(OF_GROUPS, has_all=True)
    held.check(GROUP)
    assert list(held) == list(GROUPS) and held.serves(GROUP) and held.holds(SCOPE)
    with held.used(GROUP):
        held.check(GROUP)


def test_a_group_is_served_while_its_scope_is_held(held: HeldScopes) -> None:
    with pytest.raises(NotCoordinator):
        held.check(GROUP)
    with held.loaded(SCOPE):
        assert held.is_loading
        with pytest.raises(CoordinatorLoading):
            held.check(GROUP)
    held.check(GROUP)
    assert list(held) == [SCOPE] and not held.is_loading
    held.release(SCOPE)
    with pytest.raises(NotCoordinator), held.used(GROUP):
        pass


def test_a_scope_that_cannot_be_loaded_is_not_held(held: HeldScopes) -> None:
    with pytest.raises(OSError), held.loaded(SCOPE):
        raise OSError
    with pytest.raises(NotCoordinator):
        held.check(GROUP)


def test_a_scope_is_loaded_once(held: HeldScopes) -> None:
    with held.loaded(SCOPE), pytest.raises(ValueError, match="held already"), held.loaded(SCOPE):
        pass
    with pytest.raises(ValueError, match="held already"), held.loaded(SCOPE):
        pass


def test_the_scope_of_the_coordinator_has_no_groups(held: HeldScopes) -> None:
    assert not held.holds(COORDINATOR)
    with pytest.raises(ValueError, match="no scope of a group"):
        held.release(COORDINATOR)


async def test_work_ends_before_a_scope_is_unused(held: HeldScopes) -> None:
    told: list[Scope] = []
    held.when_released(told.append)
    with held.loaded(SCOPE):
        pass
    with held.loaded(OTHER):
        pass
    with held.used(GROUP):
        with held.used(GROUP):
            held.release(SCOPE)
            assert told == [SCOPE]
            await held.unused(OTHER)
            unused = asyncio.ensure_future(held.unused(SCOPE))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not unused.done()
    await asyncio.wait_for(unused, 30)
    await held.unused(SCOPE)


async def test_one_that_no_longer_waits_does_not_end_the_wait_of_others(held: HeldScopes) -> None:
    with held.loaded(SCOPE):
        pass
    with held.used(GROUP):
        held.release(SCOPE)
        first, second = (asyncio.ensure_future(held.unused(SCOPE)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        assert not second.done()
    await asyncio.wait_for(second, 30)
