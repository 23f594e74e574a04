"""Whatever clients do, and whenever the broker stops: what is not settled can be read, and the rest goes."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.broker.queues import stragglers
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.stragglers import StragglerLimits
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.routing.definitions import ExchangeKind
from posthouse.model.clock import ManualClock
from posthouse.storage.files.engine import FileStorage
from tests.broker.queues.rig import PLAIN, Rig, running, tiny_segments
from tests.directories import IN_MEMORY
from tests.examples import examples
from tests.storage.stores import crash_copy

QUEUES = ("a", "b", "c")
PRIORITIES = {"b": 1}
LIMITS = StragglerLimits(most=6, positions=8, seconds=60, rewritten=0)

ROUTES: list[tuple[str, bytes, tuple[bytes, ...], tuple[str, ...]]] = [
    ("", b"a", (), ("a",)),
    ("", b"b", (), ("b",)),
    ("", b"a", (b"c",), ("a", "c")),
    ("all", b"", (), ("a", "b")),
    ("some", b"b", (), ("b",)),
    ("some", b"c", (), ("c",)),
    ("some", b"nobody", (), ()),
]
"""Exchange, key, further keys, and the queues that get the message."""
ROUTE_TO = {"a": 3, "b": 1, "c": 2}

queue_names = st.sampled_from(QUEUES)
routes = st.integers(0, len(ROUTES) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), routes, st.integers(1, 12), st.integers(0, 1)),
        st.tuples(st.just("publish"), st.integers(0, 3), st.integers(10, 30), st.just(0)),
        st.tuples(st.just("take"), queue_names, st.integers(1, 40)),
        st.tuples(st.just("take"), queue_names, st.just(100)),
        st.tuples(st.just("ack"), queue_names, st.integers(0, 6), st.integers(1, 3)),
        st.tuples(st.just("ack"), queue_names, st.integers(0, 3), st.just(1)),
        st.tuples(st.just("ack_with"), queue_names, st.integers(0, 3)),
        st.tuples(st.just("release"), queue_names, st.integers(0, 5)),
        st.tuples(st.just("purge"), queue_names),
        st.tuples(st.just("reclaim"), st.integers(1, 3)),
        st.tuples(st.just("straggle"), queue_names, st.integers(1, 4)),
        st.tuples(st.just("retain")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("crash"), st.integers(0, 20)),
    ),
    min_size=10,
    max_size=60,
)


class Model:
    """One queue as it should be: values by the order in which they are to come."""

    def __init__(self) -> None:
        self.unsettled: dict[bytes, tuple[int, int]] = {}
        self.held: list[Message] = []
        self.acked_lately: set[bytes] = set()
        """A crash may bring these back."""

    @property
    def in_order(self) -> list[bytes]:
        return sorted(self.unsettled, key=self.unsettled.__getitem__)


class World:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0
        self.clock = ManualClock()
        self.models = {name: Model() for name in QUEUES}
        self._published = 0
        self.rig: Rig

    @property
    def data(self) -> Path:
        return self._directory / str(self._generation)

    async def run(self, steps: list[tuple[Any, ...]]) -> None:
        pending = iter([("declare",), *steps, ("finish",)])
        while await self._one_life(pending):
            self.clock.advance(1)

    async def _one_life(self, steps: Iterator[tuple[Any, ...]]) -> bool:
        """Until the broker stops; whether it is to start again."""
        storage = FileStorage(self.data, clock=self.clock, checkpoint_seconds=3600, journal_bytes=16 * 1024)
        async with running(clock=self.clock, storage=storage) as self.rig:
            self.rig.retention.limits = LIMITS
            for name, model in self.models.items():
                model.held.clear()
                if model.acked_lately:
                    await self._compare_after_crash(name, model)
            self._check_counts()
            for step in steps:
                if step == ("restart",):
                    for model in self.models.values():
                        model.acked_lately.clear()
                    return True
                if step[0] == "crash":
                    await self._crash(storage, step[1])
                    return True
                await getattr(self, f"_{step[0]}")(*step[1:])
                self._check_counts()
        return False

    def _check_counts(self) -> None:
        for name in self.rig.namespace.queues:
            model = self.models[name]
            assert self.queue(name).message_count == len(model.unsettled) - len(model.held)

    async def _compare_after_crash(self, name: str, model: Model) -> None:
        """What was acknowledged just before it may have come back, and nothing else."""
        queue = self.queue(name)
        messages = await self._taken(queue, 10_000)
        values = {message.value or b"" for message in messages}
        assert len(values) == len(messages)
        assert values >= model.unsettled.keys()
        for value in values - model.unsettled.keys():
            assert value in model.acked_lately
            model.unsettled[value] = _order(value, name)
        model.acked_lately.clear()
        queue.release(messages)

    async def _crash(self, storage: FileStorage, turns: int) -> None:
        """In the middle of giving disk back."""
        self.clock.advance(60)
        reclaiming = asyncio.create_task(self.rig.retention.reclaim())
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        await crash_copy(storage, self._directory / str(self._generation + 1))
        self._generation += 1
        await reclaiming

    def queue(self, name: str) -> Queue:
        return self.rig.found(name)

    async def _taken(self, queue: Queue, most: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < most and (message := await queue.get()) is not None:
            taken.append(message)
        return taken

    # Steps

    async def _declare(self) -> None:
        for name in QUEUES:
            await self.rig.queue(name, max_priority=PRIORITIES.get(name, 0))
        await self.rig.exchange("all")
        await self.rig.exchange("some", ExchangeKind.DIRECT)
        for exchange, key, _, names in ROUTES[3:]:
            for name in names:
                await self.rig.bind(exchange, name, key)

    async def _publish(self, route: int, count: int, priority: int) -> None:
        exchange, key, more, names = ROUTES[route]
        values = []
        for _ in range(count):
            values.append(b"%06d %d" % (self._published, priority))
            self._published += 1
        envelope = Envelope(headers=PLAIN.headers, priority=priority, more_keys=more)
        await self.rig.publish(*values, key=key, exchange=exchange, envelope=envelope)
        for name in names:
            self.models[name].unsettled |= {value: _order(value, name) for value in values}

    async def _take(self, name: str, count: int) -> None:
        model = self.models[name]
        held = {message.value for message in model.held}
        expected = [value for value in model.in_order if value not in held][:count]
        taken = await self._taken(self.queue(name), count)
        assert [message.value for message in taken] == expected
        model.held += taken

    async def _ack(self, name: str, first: int, step: int) -> None:
        self.queue(name).ack(self._let_go(name, first, step))

    async def _ack_with(self, name: str, first: int) -> None:
        wave = TransactionWave(self.rig.broker.publishing)
        self.queue(name).ack(self._let_go(name, first, 2), wave)
        await wave.commit()

    def _let_go(self, name: str, first: int, step: int) -> list[Message]:
        model = self.models[name]
        messages = model.held[first::step]
        del model.held[first::step]
        for message in messages:
            del model.unsettled[message.value or b""]
            model.acked_lately.add(message.value or b"")
        return messages

    async def _release(self, name: str, first: int) -> None:
        model = self.models[name]
        messages, model.held = model.held[first:], model.held[:first]
        self.queue(name).release(messages)

    async def _purge(self, name: str) -> None:
        model = self.models[name]
        held = {message.value for message in model.held}
        for value in [value for value in model.unsettled if value not in held]:
            del model.unsettled[value]
            model.acked_lately.add(value)
        self.queue(name).purge()

    async def _reclaim(self, times: int) -> None:
        for _ in range(times):
            await self.rig.retention.reclaim()
            self.clock.advance(60)
        for model in self.models.values():
            model.acked_lately.clear()

    async def _straggle(self, name: str, kept: int) -> None:
        """Acknowledge all but a few, and let time go by."""
        await self._publish(ROUTE_TO[name], 12, 0)
        await self._take(name, 10_000)
        await self._ack(name, kept, 1)
        await self._reclaim(3)

    async def _retain(self) -> None:
        self.clock.advance(8 * 86_400)
        await self.rig.broker.retention.enforce()

    async def _finish(self) -> None:
        """Everything can be read, in order; when it is settled, nothing is left on the disk."""
        for name, model in self.models.items():
            queue = self.queue(name)
            queue.release(model.held)
            model.held.clear()
            await self._take(name, 10_000)
            assert len(model.held) == len(model.unsettled)
            await self._ack(name, 0, 1)
        await self._reclaim(2)
        for topic in self.rig.storage.topics.values():
            for partition in topic.partition_ids():
                if topic.is_internal or topic.config.retention_consumed:
                    assert self.rig.storage.size(partition) == 0, topic.name


def _order(value: bytes, name: str) -> tuple[int, int]:
    number, priority = value.split()
    return (-int(priority) if name in PRIORITIES else 0, int(number))


@given(STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_what_is_not_settled_is_there(steps: list[tuple[Any, ...]]) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as place,
    ):
        tiny_segments(patch)
        patch.setattr(stragglers, "_SPARSE", 1)
        asyncio.run(World(Path(place)).run(steps))
