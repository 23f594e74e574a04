"""What is done to the broker, when and how often: all of it by the seed."""

import asyncio
from collections.abc import Sequence
from random import Random

from tests.checker.history import Fault
from tests.simulation.machine import Machine
from tests.simulation.recorder import Recorder

KINDS = (
    "kill",
    "power-cut",
    "kill in a write",
    "power-cut in a write",
    "stop",
    "pause",
    "clock jump",
    "sync error",
    "disk full",
    "lost connection",
    "lost connections",
    "slow network",
)
LONGEST_DOWN = 1.0


class Faults:
    """Runs beside the clients, and puts everything right at the end."""

    def __init__(
        self, machine: Machine, recorder: Recorder, random: Random, kinds: Sequence[str] = KINDS
    ) -> None:
        self._kinds = kinds
        self._machine = machine
        self._recorder = recorder
        self._random = random
        machine.on_death = self._died

    def _died(self, kind: str) -> None:
        self._recorder.history.append(Fault(self._recorder.now, kind))
        if kind == "failed start" and self._random.random() < 0.3:
            self._machine.disk.room = None  # somebody has made room
        delay = self._random.random() * LONGEST_DOWN
        world = self._machine.world
        world.schedule(world.now_ns + int(delay * 1e9), self._boot)

    def _boot(self) -> None:
        if self._machine.app is None:
            self._machine.boot()

    async def run(self, count: int, longest_wait: float) -> None:
        for _ in range(count):
            await asyncio.sleep(self._random.random() * longest_wait)
            kind = self._random.choice(self._kinds)
            self._machine.world.note(f"fault {kind}")
            await self._inflict(kind)

    async def _inflict(self, kind: str) -> None:
        machine, random = self._machine, self._random
        if kind in ("kill", "power-cut"):
            machine.die(kind)  # which notes it
            return
        if kind.endswith("in a write"):
            # Noted when it happens.
            machine.die_at_change(random.randrange(40), kind.removesuffix(" in a write"))
            return
        self._recorder.history.append(Fault(self._recorder.now, kind))
        if kind == "stop":
            machine.stop()
        elif kind == "pause":
            if machine.loop is not None:
                machine.loop.process.pause(random.random() * 8)
        elif kind == "clock jump":
            machine.clock.jumped_ms += random.choice((-86_400_000, -1000, 1000, 3_600_000))
        elif kind == "sync error":
            machine.disk.syncs_to_fail = random.choice((1, 1, 3))
            if random.random() < 0.6:
                await asyncio.sleep(random.random())
                machine.die("power-cut")
        elif kind == "disk full":
            machine.disk.room = random.randrange(3000)
            await asyncio.sleep(random.random() * 3)
            machine.disk.room = None
        elif kind == "slow network":
            machine.network.slowest_ns = random.choice((100_000, 2_000_000, 300_000_000))
        else:
            connections = machine.network.clients
            if kind == "lost connection" and connections:
                connections = [random.choice(connections)]
            for connection in connections:
                machine.network.cut(connection)

    async def heal(self, *, power_cut: bool) -> None:
        """Return when the broker is up and nothing stands in its way."""
        machine = self._machine
        machine.disk.room = None
        machine.disk.syncs_to_fail = 0
        machine.network.slowest_ns = 2_000_000
        machine.stay_alive()
        if machine.loop is not None:
            machine.loop.process.resume()
        if power_cut:
            machine.die("power-cut")
        while not machine.is_up:
            if machine.has_started and not machine.is_stopping:  # it is fenced, and says so: restart it
                machine.die("kill")
            await asyncio.sleep(0.1)
            machine.disk.room = None
