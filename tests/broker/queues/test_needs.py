"""What a lane is said to need, against all of its references."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.broker.queues import needs as needs_module
from posthouse.broker.queues.needs import SPANS, LaneNeeds
from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Refer, Run
from tests.examples import examples
from tests.storage.batches import make_topic

SOURCES = [PartitionId(new_topic_id(), 0) for _ in range(3)]

RUNS = st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 3))
"""Of which source, of how many messages, behind how many that went elsewhere."""
STEPS = st.lists(st.tuples(st.lists(RUNS, min_size=1, max_size=400), st.floats(0, 1)), min_size=1, max_size=4)


class Lane:
    def __init__(self, storage: MemoryStorage, log: PartitionId) -> None:
        self.storage = storage
        self.log = log
        self.places: list[tuple[PartitionId, int]] = []
        self._ends = dict.fromkeys(SOURCES, 0)

    async def grow(self, runs: Sequence[tuple[int, int, int]]) -> None:
        for number, count, skipped in runs:
            source = SOURCES[number]
            first = self._ends[source] + skipped
            self._ends[source] = first + count
            self.places += [(source, first + each) for each in range(count)]
            await self.storage.commit([Refer(self.log, [Run(source, first, count, 10 * count)])])

    def lowest(self, floor: int) -> dict[PartitionId, int]:
        lowest: dict[PartitionId, int] = {}
        for source, offset in self.places[floor:]:
            lowest.setdefault(source, offset)
        return lowest


async def new_lane() -> Lane:
    storage = MemoryStorage(ManualClock())
    topic = make_topic()
    await storage.create_topics([topic])
    return Lane(storage, topic.partition(0))


async def check(steps: Sequence[tuple[Sequence[tuple[int, int, int]], float]]) -> None:
    lane, needs, floor = await new_lane(), LaneNeeds(), 0
    for runs, share in steps:
        await lane.grow(runs)
        end = len(lane.places)
        floor += int((end - floor) * share)
        await needs.follow(lane.storage, lane.log, floor)
        found, exact = needs.lowest(floor), lane.lowest(floor)
        assert found.keys() == exact.keys()
        assert all(found[source] <= exact[source] for source in exact), "never too high"
        assert all(found[source] == exact[source] for source, _ in lane.places[floor : floor + 1])
        below = {source: offset + 5 for source, offset in exact.items()}
        behind = [at + 1 for at, (source, offset) in enumerate(lane.places) if offset < below.get(source, 0)]
        assert needs.end_of(below) >= max([at for at in behind if at > floor], default=0)
        assert len(list(needs._spans())) <= 4 * needs_module.SPANS
        assert abs(needs.size(floor, end) - 10 * (end - floor)) <= len(list(needs._spans()))


@given(STEPS)
@settings(max_examples=examples(200), deadline=None)
def test_what_is_needed_is_never_left_out(steps: list[tuple[list[tuple[int, int, int]], float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(needs_module, "SPANS", 3)
        asyncio.run(check(steps))


async def test_a_long_lane_is_told_in_detail_where_its_floor_is() -> None:
    lane, needs = await new_lane(), LaneNeeds()
    await lane.grow([(number % 3, 1, 2) for number in range(20_000)])
    for floor in (0, 1, 5000, 5001, 5003, 12_345, 19_990, 20_000):
        await needs.follow(lane.storage, lane.log, floor)
        assert needs.lowest(floor) == lane.lowest(floor)
        assert len(list(needs._spans())) <= 4 * SPANS


async def test_references_are_looked_at_a_few_times_at_most() -> None:
    lane, needs, read = await new_lane(), LaneNeeds(), 0
    storage_read = lane.storage.read

    async def counted(*args: int, **kwargs: bool) -> object:
        nonlocal read
        found = await storage_read(*args, **kwargs)  # type: ignore[arg-type]
        read += len(found.data)
        return found

    lane.storage.read = counted  # type: ignore[method-assign, assignment]
    await lane.grow([(number % 3, 1, 2) for number in range(10_000)])
    for floor in range(0, 10_000, 100):
        await needs.follow(lane.storage, lane.log, floor)
    assert read < 5 * lane.storage.size(lane.log)


async def test_what_was_settled_before_it_was_looked_at_costs_nothing() -> None:
    lane, needs = await new_lane(), LaneNeeds()
    await lane.grow([(0, 1, 1)] * 100)

    async def unexpected(*args: object) -> object:
        raise AssertionError("there is nothing to read")

    lane.storage.read = unexpected  # type: ignore[method-assign, assignment]
    await needs.follow(lane.storage, lane.log, 100)
    assert needs.lowest(100) == {}
