"""Scopes of housekeeping in a broker that is alone, which cannot give any away."""

import pytest

from posthouse.broker.broker import Broker
from posthouse.model.clock import ManualClock
from posthouse.model.scopes import HOUSEKEEPING, SCOPES
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage


async def test_a_broker_that_is_alone_holds_all_scopes_and_gives_none_away() -> None:
    clock = ManualClock()
    broker = Broker(MemoryStorage(clock), Settings(memory=True), clock)
    await broker.start()
    await broker.coordinate()
    try:
        assert all(map(broker.holds, SCOPES))
        for refused in (broker.take_scope(HOUSEKEEPING[0]), broker.release_scope(HOUSEKEEPING[0])):
            with pytest.raises(ValueError, match="alone"):
                await refused
    finally:
        await broker.stop()
