"""A schedule against a plain list: publish, let time pass, set the clock, stop, crash, fail, in any order."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from posthouse.broker import stored_records
from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from tests.broker.schedule.office import DAY, HOUR, MINUTE, SECOND, YEAR, Killed, Office
from tests.directories import IN_MEMORY
from tests.examples import examples

T = TypeVar("T")

WINDOWS = st.sampled_from([2, 8, 40])
"""With the largest one, some logs of longer periods are loaded as they are; with the others, they are moved
to shorter ones."""
SPANS = (20, SECOND, MINUTE, 3 * MINUTE, HOUR, 3 * HOUR, DAY, 20 * DAY, 3 * YEAR)
TIMES = st.sampled_from(SPANS).flatmap(lambda span: st.integers(0, span))
WHICH = st.lists(st.integers(0, 200), min_size=1, max_size=8)
DELAYS = st.lists(TIMES | st.integers(-2 * SECOND, 100), min_size=1, max_size=15)


class ScheduleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.small_pieces = mock.patch.object(stored_records, "PIECE_BYTES", 300)
        self.small_pieces.start()
        self.root = Path(tempfile.mkdtemp(dir=IN_MEMORY, prefix="posthouse-"))
        self.due: dict[bytes, int] = {}
        self.recalled: set[bytes] = set()
        self.uncertain: set[bytes] = set()
        """Recalls that were asked for when the broker crashed."""
        self.everything_due_is_sent = True

    def run(self, work: Awaitable[T]) -> T:
        async def wrap() -> T:
            return await asyncio.wait_for(work, 30)

        return self.loop.run_until_complete(wrap())

    @initialize(on_files=st.booleans(), journal_bytes=st.sampled_from([600, 8192]), window=WINDOWS)
    def begin(self, on_files: bool, journal_bytes: int, window: int) -> None:
        self.clock = ManualClock()
        self.office = Office(
            self.clock,
            self.root / "data" if on_files else None,
            window=window,
            most_at_once=5,
            most_bytes_at_once=400,
            journal_bytes=journal_bytes,
        )
        self.run(self.office.open())

    async def _publish(self, delays: list[int]) -> None:
        now = self.clock.now_ms()
        self.everything_due_is_sent = False
        for body, delay in zip(await self.office.delay(*delays), delays, strict=True):
            self.due[body] = now + delay

    @rule(delays=DELAYS)
    def publish(self, delays: list[int]) -> None:
        self.run(self._publish(delays))

    @rule(ms=TIMES)
    def time_passes(self, ms: int) -> None:
        self.run(self.office.advance(ms))
        self.everything_due_is_sent = True

    @rule(delays=DELAYS, ms=TIMES)
    def time_passes_while_others_publish(self, delays: list[int], ms: int) -> None:
        async def both() -> None:
            await asyncio.gather(self.office.advance(ms), self._publish(delays), self._publish(delays[:3]))

        self.run(both())

    @rule(ms=TIMES, steps=st.integers(1, 6))
    def some_steps(self, ms: int, steps: int) -> None:
        """So that what follows happens in the middle of something."""
        self.clock.advance(ms / 1000)
        self.everything_due_is_sent = False
        for _ in range(steps):
            self.run(self.office.schedule._step())

    @rule(ms=TIMES.flatmap(lambda ms: st.sampled_from([-ms, ms])))
    def the_clock_is_set(self, ms: int) -> None:
        self.clock.jump(ms)
        self.everything_due_is_sent = False

    @rule(ms=TIMES)
    def it_is_refused(self, ms: int) -> None:
        self.office.refuse_with = Unavailable("not now")
        self.everything_due_is_sent = False
        with contextlib.suppress(Unavailable):
            self.run(self.office.advance(ms))
        self.office.refuse_with = None

    def _some(self, which: list[int]) -> list[bytes]:
        bodies = list(self.due)
        return list(dict.fromkeys(bodies[each % len(bodies)] for each in which))

    @precondition(lambda self: self.due)
    @rule(which=WHICH)
    def recall(self, which: list[int]) -> None:
        self.recalled |= set(self.run(self.office.recall(*self._some(which))))

    @precondition(lambda self: self.due)
    @rule(which=WHICH, ms=TIMES)
    def recall_while_time_passes(self, which: list[int], ms: int) -> None:
        async def both() -> None:
            recalled, _ = await asyncio.gather(
                self.office.recall(*self._some(which)), self.office.advance(ms)
            )
            self.recalled |= set(recalled)

        self.everything_due_is_sent = False
        self.run(both())

    @precondition(lambda self: self.due and self.office.directory is not None)
    @rule(which=WHICH, turns=st.integers(1, 12))
    def crash_in_the_middle_of_recalls(self, which: list[int], turns: int) -> None:
        async def crash() -> None:
            bodies = self._some(which)
            asked = self.office.ask_to_recall(*bodies)
            firing = asyncio.create_task(self.office.schedule.fire_due())
            for _ in range(turns):
                await asyncio.sleep(0)
            for body, each in zip(bodies, asked, strict=True):
                if not each.done():
                    self.uncertain.add(body)
                elif each.exception() is None:
                    self.recalled.add(body)
            await self.office.crash()
            await asyncio.gather(firing, *asked, return_exceptions=True)

        self.everything_due_is_sent = False
        self.run(crash())

    @precondition(lambda self: self.office.directory is not None)
    @rule(window=WINDOWS)
    def restart(self, window: int) -> None:
        self.office.window = window
        self.run(self.office.close_and_open())

    @precondition(lambda self: self.office.directory is not None)
    @rule(window=WINDOWS)
    def crash(self, window: int) -> None:
        self.office.window = window
        self.run(self.office.crash())

    @precondition(lambda self: self.office.directory is not None)
    @rule(ms=TIMES)
    def crash_before_the_acknowledgement(self, ms: int) -> None:
        async def until_killed() -> None:
            with contextlib.suppress(Killed):
                await self.office.advance(ms)

        self.office.killed_after_commit = True
        self.everything_due_is_sent = False
        self.run(until_killed())
        self.office.killed_after_commit = False
        self.run(self.office.crash())

    @precondition(lambda self: hasattr(self, "office"))
    @invariant()
    def all_is_well(self) -> None:
        sent = self.run(self.office.sent())
        assert len(sent) == len(set(sent)), "sent once"
        assert not self.recalled & set(sent), "recalled or sent, and never both"
        left = len(self.due) - len(sent)
        may_be_gone = len((self.recalled | self.uncertain) - set(sent))
        assert left - may_be_gone <= self.office.schedule.waiting <= left, "none is lost"
        assert self.office.schedule.loaded <= self.office.window
        if self.everything_due_is_sent:
            now = self.clock.now_ms()
            missing = {body for body, due in self.due.items() if due <= now} - set(sent)
            assert missing <= self.recalled | self.uncertain, "none is forgotten"

    def teardown(self) -> None:
        if hasattr(self, "office"):
            # After a while everything has come.
            self.run(self.office.advance(4 * YEAR))
            self.run(self.office.advance(4 * YEAR))
            sent = set(self.run(self.office.sent()))
            assert set(self.due) - self.recalled - self.uncertain <= sent <= set(self.due) - self.recalled
            assert self.office.schedule.waiting == 0
            assert len(self.office.schedule._buckets) == 0
            self.run(self.office.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.small_pieces.stop()
        shutil.rmtree(self.root)


TestSchedule = ScheduleMachine.TestCase
TestSchedule.settings = settings(
    max_examples=examples(60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
