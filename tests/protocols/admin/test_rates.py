"""Rates of queues: measured while somebody asks, and forgotten afterwards."""

import asyncio

import pytest

from posthouse.protocols.admin import rates
from posthouse.protocols.admin.rates import Counts, Rates
from tests.broker.queues.lazy_rig import until
from tests.broker.queues.rig import running


async def test_sampling_ends_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_SECONDS", 0.01)
    monkeypatch.setattr(rates, "_KEPT_SECONDS", 0.2)
    async with running() as rig:
        queue = await rig.queue()
        measured = Rates(rig.broker.namespaces)
        assert measured.of_queue(queue) == measured.of_namespace("/") == Counts()
        async with asyncio.timeout(20):
            while not measured.of_queue(queue).publish:
                await rig.publish(b"a")
        assert measured.of_namespace("/").publish > 0
        assert measured.of_namespace("none") == Counts()
        await until(lambda: measured._timer is None and measured._last is None)
        assert measured.of_queue(queue) == Counts(), "sampling begins anew"
        await until(lambda: measured._last is not None)


def test_counters_that_fall_are_no_negative_rate() -> None:
    before = Counts(publish=10, deliver=4, ready=6)
    after = Counts(publish=2, deliver=8, ready=1)
    assert after.per_second(before, 2.0) == Counts(publish=0, deliver=2, ready=-2.5)
