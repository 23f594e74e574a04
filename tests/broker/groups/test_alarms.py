"""Alarms ring at the earliest time that was asked for, and not for groups that are gone."""

import asyncio
import math

from posthouse.broker.groups.alarms import Alarms
from posthouse.model.clock import SystemClock
from posthouse.model.ids import GroupId

A, B = GroupId("a"), GroupId("b")


async def test_the_earliest_counts() -> None:
    clock, rung = SystemClock(), list[GroupId]()
    alarms = Alarms(clock, rung.append)
    now = clock.monotonic()
    alarms.plan(A, math.inf)
    alarms.plan(A, now + 60)
    alarms.plan(A, now + 0.01)
    alarms.plan(A, now + 60)
    alarms.plan(B, now - 1)
    async with asyncio.timeout(30):
        while len(rung) < 2:
            await asyncio.sleep(0.005)
    assert rung == [B, A]
    await asyncio.sleep(0.05)
    assert rung == [B, A], "each rings once"


async def test_gone() -> None:
    clock, rung = SystemClock(), list[GroupId]()
    alarms = Alarms(clock, rung.append)
    alarms.plan(A, clock.monotonic() + 0.01)
    alarms.plan(B, clock.monotonic() + 0.01)
    alarms.drop(A)
    alarms.drop(A)
    alarms.close()
    await asyncio.sleep(0.03)
    assert rung == []
