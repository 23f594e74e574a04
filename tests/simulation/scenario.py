"""One seed: a broker, its clients, its faults, and the verdict."""

import asyncio
import gc
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from posthouse.model.errors import PosthouseError
from posthouse.storage.files.system.disk import SyncFailed
from tests.checker.history import History
from tests.checker.judge import check
from tests.checker.report import Report
from tests.simulation.consuming import read_all
from tests.simulation.controls import NONE, Control
from tests.simulation.faults import Faults
from tests.simulation.kafka_client import KafkaClient, Refused
from tests.simulation.kafka_wire import Lost
from tests.simulation.loop import Loop
from tests.simulation.machine import Limits, Machine, installed
from tests.simulation.network import Network
from tests.simulation.producing import PAUSE
from tests.simulation.queueing import drain
from tests.simulation.recorder import Recorder
from tests.simulation.workload import TOPICS, Workload, partitions_of
from tests.simulation.world import NS, Process, World

LIMIT_SECONDS = 900
_RECOVERY = "posthouse.storage.files.recovery.tails"
"""It logs damage alone. No fault here damages anything, and what a power cut takes is no damage."""
SHOWN = 8
"""How many of a seed's problems are worth a line: one has many consequences."""
SETTLED_SECONDS = 1.0
"""After it the broker has noticed that consumers are gone, and has put back what they held."""
FAULTS_FROM_THE_START = 0.3
"""In how many scenarios they begin before there is any topic."""


@dataclass(slots=True)
class Result:
    seed: int
    report: Report
    digest: str
    steps: int
    lives: int
    seconds: float
    """Of virtual time."""
    trace: list[str] | None
    history: History
    failures: list[str] = field(default_factory=list)
    """What went wrong inside the broker, or with the simulation, without being an anomaly."""

    @property
    def is_good(self) -> bool:
        return not self.report.anomalies and not self.failures

    def __str__(self) -> str:
        problems = dict.fromkeys([*map(str, self.report.anomalies), *self.failures])
        return f"seed {self.seed}: " + ("; ".join(list(problems)[:SHOWN]) or "good")


class Observed(Protocol):
    """What is logged belongs to it."""

    world: World
    is_sound: bool
    """Nothing was broken on purpose."""

    def fail(self, reason: str) -> None:
        """It has gone wrong."""


class Scenario:
    def __init__(self, seed: int, *, keep_trace: bool = False, control: Control = NONE) -> None:
        self.world = World(seed, keep_trace=keep_trace)
        self.random = self.world.random("scenario")
        self.failures: list[str] = []
        self.network = Network(self.world)
        self.network.breaks_up = self.random.choice((0.0, 0.1, 0.5))
        self.recorder = Recorder(self.world)
        self.machine = Machine(self.world, self.network, self._limits(), self._failed)
        control.prepare(self.machine)
        random = self.world.random("faults")
        self.faults = Faults(self.machine, self.recorder, random, control.kinds)
        self.loop = Loop(Process(self.world, "clients"), self.network, self._failed)
        self.is_sound = control is NONE
        self._over = False
        self._judging = False
        self._topic_ids: dict[str, bytes] = {}
        self.workload = Workload(self.world, self.recorder, self._client)

    def _limits(self) -> Limits:
        choose = self.random.choice
        return Limits(
            journal_bytes=choose((1500, 6000, 60_000)),
            open_files=choose((2, 5, 50)),
            checkpoint_seconds=choose((0.3, 2.0, 60.0)),
            connection_buffer_bytes=choose((500, 5000, 1_000_000)),
            slowest_work_ns=choose((0, 3_000_000, 100_000_000)),
        )

    def _failed(self, who: str, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(f"{who}: {context.get('message')} {error!r}")

    def fail(self, reason: str) -> None:
        """Once is enough: what happens after a mistake says nothing."""
        if not self._judging:
            self.failures.append(reason)
            self._over = True

    def run(self) -> Result:
        with installed(self.machine), quiet(self):
            self.machine.boot()
            main = self.loop.create_task(self._main())
            main.add_done_callback(self._ended)
            try:
                self.world.run_until(lambda: self._over, limit_ns=LIMIT_SECONDS * NS)
            except TimeoutError as error:
                self.failures.append(str(error))
            self._judging = True
            self.machine.scrap()
            self.loop.bury()
        report = check(self.recorder.history)
        report.anomalies += self.workload.anomalies()
        return Result(
            self.world.seed,
            report,
            self.world.digest,
            self.world.steps,
            self.machine.lives,
            self.world.now_ns / NS,
            self.world.trace,
            self.recorder.history,
            self.failures,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._over = True
        error = task.exception()
        if error is not None:
            self.fail("the clients failed: " + "".join(traceback.format_exception(error)))

    async def _main(self) -> None:
        random = self.random
        faults = self.faults.run(random.randrange(6), longest_wait=random.choice((0.1, 0.3, 1.0)))
        if random.random() < FAULTS_FROM_THE_START:
            faulty = self.loop.create_task(faults)
            await self._create_topics()
        else:
            await self._create_topics()
            faulty = self.loop.create_task(faults)
        attendance = asyncio.gather(*self.workload.attendance())
        work = asyncio.gather(*self.workload.work())
        await faulty
        await self.faults.heal(power_cut=False)
        await work
        self.recorder.is_over = True
        await attendance
        await self.faults.heal(power_cut=random.random() < 0.5)
        await self._read_everything()
        if self.workload.queues:
            await asyncio.sleep(SETTLED_SECONDS)
        for queue in self.workload.queues:
            await drain(self.recorder, queue)

    async def _create_topics(self) -> None:
        client = KafkaClient()
        configs = {"internal.segment.bytes": str(self.random.choice((200, 1000, 100_000)))}
        while True:
            try:
                await client.create_topics(TOPICS, configs)
                await client.learn_topics(list(TOPICS))
            except (Lost, Refused):
                await asyncio.sleep(PAUSE)
            else:
                self._topic_ids = client.topics
                client.disconnect()
                return

    def _client(self) -> KafkaClient:
        client = KafkaClient()
        client.topics = self._topic_ids
        return client

    async def _read_everything(self) -> None:
        client = self._client()
        partitions = [partition for topic in TOPICS for partition in partitions_of(topic)]
        for committed_only in (False, True):
            await read_all(self.recorder, client, partitions, committed_only=committed_only)
        client.disconnect()


@contextmanager
def quiet(scenario: Observed) -> Iterator[None]:
    """Log lines go into the trace; those about mistakes of the broker's own count as failures."""
    handler = _Lines(scenario)
    root = logging.getLogger("posthouse")
    before, propagates = root.level, root.propagate
    root.setLevel(logging.INFO if scenario.world.trace is not None else logging.ERROR)
    root.propagate = False
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        root.propagate = propagates


class _Lines(logging.Handler):
    def __init__(self, scenario: Observed) -> None:
        super().__init__()
        self._scenario = scenario

    def emit(self, record: logging.LogRecord) -> None:
        scenario = self._scenario
        if scenario.world.trace is not None:
            scenario.world.trace.append(f"{scenario.world.now_ns} log {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError | PosthouseError | SyncFailed):
            scenario.fail(f"{record.getMessage()}: {error!r}")
        if record.name == _RECOVERY and scenario.is_sound:
            scenario.fail(f"an alarm without damage: {record.getMessage()}")


def run(seed: int, *, keep_trace: bool = False, control: Control = NONE) -> Result:
    # Nothing is collected in between: what the dead left behind must not act while others live.
    gc.collect()
    gc.disable()
    try:
        return Scenario(seed, keep_trace=keep_trace, control=control).run()
    finally:
        gc.enable()
