"""Rounds of one fault on one data directory: load, fault, start again; a last look, and the verdict."""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.checker.history import Fault, History, Takeover
from tests.checker.judge import check
from tests.torture.brokers import BrokerProcess, Recipe, errors_in, running
from tests.torture.recording import Recorder
from tests.torture.workloads import LOST, RETRY_SECONDS, Client, Refused, Workload

MakeWorkload = Callable[[Recorder, Random], Workload]

_DEATH_SECONDS = 2.0


class HungUp(Exception):
    """A connection was lost for no reason."""


@dataclass(slots=True)
class Verdict:
    """How a campaign ended."""

    history: History
    rounds: int = 0
    anomalies: list[str] = field(default_factory=list)
    """What the checker found, what went wrong on the way, and what the broker complained of."""
    seconds: float = 0.0

    @property
    def operations(self) -> int:
        return sum(not isinstance(each, Fault | Takeover) for each in self.history)

    @property
    def faults(self) -> Counter[str]:
        return Counter(each.name for each in self.history if isinstance(each, Fault))


@dataclass(slots=True)
class Arena:
    """What a fault has to do with: the broker, its clients, and chance."""

    recipe: Recipe
    workload: Workload
    recorder: Recorder
    random: Random
    refusals_are_expected: bool = False
    broker: BrokerProcess | None = None
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def ensure_running(self) -> BrokerProcess:
        """A broker with all clients at work, which may be those of the round before."""
        broker = self.broker
        if broker is None or not broker.is_alive:
            await self.stop_clients()
            self.broker = broker = BrokerProcess(self.recipe)
            await broker.start()
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._live(client, broker)) for client in self.workload.clients
            ]
        return broker

    async def _live(self, client: Client, broker: BrokerProcess) -> None:
        while True:
            try:
                await client.live(broker.addresses)
            except LOST as error:
                await self._check_that_it_died(broker, error)
                return  # the client will be back with the next broker
            except Refused:
                if not self.refusals_are_expected:
                    raise
                self.recorder.refused()
                await asyncio.sleep(RETRY_SECONDS)

    async def _check_that_it_died(self, broker: BrokerProcess, error: Exception) -> None:
        """A broker that lives has no reason to hang up. That it died shows a moment after its sockets do."""
        deadline = time.monotonic() + _DEATH_SECONDS
        while broker.is_alive:
            if time.monotonic() > deadline:
                raise HungUp("the broker closed a connection, and lives") from error
            await asyncio.sleep(RETRY_SECONDS)

    async def progress(self, count: int) -> None:
        """Until so many promises were made; a client that fails fails the campaign."""
        waiting = asyncio.create_task(self.recorder.progress(count))
        try:
            while not waiting.done():
                working = [task for task in self._tasks if not task.done()]
                await asyncio.wait([waiting, *working], return_when=asyncio.FIRST_COMPLETED)
                self._raise_failures()
            await waiting
        finally:
            waiting.cancel()

    async def some_progress(self) -> None:
        """Until a random moment, by what clients were promised."""
        await self.progress(self.random.randint(1, self.workload.most_promises))

    def silence(self) -> None:
        """From now on no client takes notice of anything. Takes effect at once."""
        for task in self._tasks:
            task.cancel()

    async def stop_clients(self) -> None:
        self.silence()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._raise_failures()
        self._tasks = []

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def kill(self, fault: str = "kill") -> None:
        assert self.broker is not None
        self.recorder.fault(fault)
        self.broker.kill()
        await self.stop_clients()

    async def prepare(self) -> None:
        """Topics and queues, in the first life of the broker."""
        async with running(self.recipe) as broker:
            await self.workload.prepare(broker.addresses)
            await broker.stop()

    async def last_look(self, recipe: Recipe) -> None:
        """Everything there is, after all faults."""
        await self.close()
        async with running(recipe) as broker:
            await self.workload.finish(broker.addresses)
            await broker.stop()

    async def close(self) -> None:
        if self.broker is not None:
            self.broker.kill()
        self.silence()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


class Kind:
    """A kind of fault. `strike` does it once; afterwards the broker runs or is dead."""

    name: str
    refusals_are_expected = False
    """Whether a broker may refuse what clients of queues ask, and close their connections."""

    def open(self, place: Path) -> None:
        """Before the first round."""

    def close(self) -> None:
        """After the last."""

    def plain_recipe(self, place: Path) -> Recipe:
        """For a broker that nothing happens to."""
        return Recipe(data=place / "data", log=place / "broker.log")

    def recipe(self, place: Path, random: Random) -> Recipe:
        """For the next life of the broker."""
        return self.plain_recipe(place)

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> Arena:
        return Arena(self.plain_recipe(place), workload, recorder, random, self.refusals_are_expected)

    @property
    def store(self) -> str:
        """What kind of object store the brokers have, empty if none."""
        return ""

    async def strike(self, arena: Any) -> None:
        """`arena` is what the method of that name made."""
        raise NotImplementedError

    def judge(self, history: History) -> list[str]:
        return [str(anomaly) for anomaly in check(history).anomalies]

    def alarms(self, complaints: list[str]) -> list[str]:
        """Those of the broker's errors that it should have had no reason for."""
        return complaints


async def run_campaign(
    kind: Kind,
    make_workload: MakeWorkload,
    place: Path,
    *,
    rounds: int,
    seed: int,
    on_round: Callable[[], bool] = lambda: True,
) -> Verdict:
    """`on_round` is called after each round, and says whether there is time for more."""
    random = Random(seed)
    recorder = Recorder()
    workload = make_workload(recorder, Random(random.random()))
    place.mkdir(parents=True, exist_ok=True)
    verdict = Verdict(history=recorder.history)
    began = time.monotonic()
    kind.open(place)
    arena = kind.arena(place, workload, recorder, random)
    try:
        with _noting_failure(verdict):
            await arena.prepare()
            for _ in range(rounds):
                arena.recipe = kind.recipe(place, random)
                await kind.strike(arena)
                verdict.rounds += 1
                if not on_round():
                    break
            await arena.stop_clients()
        # Also after a failure: what is there, and what is not, says more about it.
        with _noting_failure(verdict):
            await arena.last_look(kind.plain_recipe(place))
        with _noting_failure(verdict):
            verdict.anomalies += kind.judge(recorder.history)
    finally:
        await arena.close()
        kind.close()
    verdict.seconds = time.monotonic() - began
    alarms = kind.alarms(errors_in(kind.plain_recipe(place).log))
    verdict.anomalies += [f"alarm: {text}" for text in alarms]
    return verdict


@contextmanager
def _noting_failure(verdict: Verdict) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the history tells more
        verdict.anomalies.append("failure: " + "".join(traceback.format_exception(error)))
