"""A seeded world: a clock, chance, and processes that take turns in small steps, so that they overlap."""

from collections.abc import Callable, Iterator
from random import Random

from tests.checker.history import Fault, History, Operation, Outcome

Steps = Iterator[None]
"""A process. It does one small thing and yields; anything may happen to the others meanwhile."""


class World:
    def __init__(self, seed: int, crashes: float) -> None:
        self.chance = Random(seed)
        self.now = 1
        self.life = 0
        """How often the broker has crashed."""
        self.history = History()
        self.stopping = False
        self.on_crash: list[Callable[[], None]] = []
        self._crashes = crashes
        self._running: list[Steps] = []
        self._names = 0

    def new(self) -> int:
        """A number that was not used before: for a value, a process or a transaction."""
        self._names += 1
        return self._names

    def record(self, operation: Operation) -> None:
        self.history.append(operation)

    def happens(self, probability: float) -> bool:
        return self.chance.random() < probability

    def start(self, steps: Steps) -> None:
        self._running.append(steps)

    def later(self, effect: Callable[[], object]) -> None:
        """An effect of which nobody hears, some time from now, unless the broker crashes before."""
        self.start(self._late(effect))

    def _late(self, effect: Callable[[], object]) -> Steps:
        life = self.life
        for _ in range(self.chance.randrange(20)):
            yield
        if life == self.life:
            effect()

    def run(self, operations: int) -> None:
        """Until the history has that many operations. Then processes end what they have begun."""
        while self._running:
            self.stopping = len(self.history) >= operations
            if not self.stopping and self.happens(self._crashes):
                self._crash()
            self.now += self.chance.randrange(3)
            index = self.chance.randrange(len(self._running))
            if next(self._running[index], self) is self:
                self._running[index] = self._running[-1]
                self._running.pop()

    def _crash(self) -> None:
        self.life += 1
        self.now += 1
        self.record(Fault(self.now, "crash"))
        self.now += 1
        for each in self.on_crash:
            each()

    def request(self, effect: Callable[[], object]) -> "Request":
        return Request(self, effect)


class Request:
    """Something that is asked of the broker. A crash on the way leaves its outcome unknown; so does chance,
    and then it was done, is done later, or never."""

    def __init__(self, world: World, effect: Callable[[], object]) -> None:
        self.invoked = world.now
        self.completed = world.now
        self.outcome = Outcome.UNKNOWN
        self.answer: object = None
        self._world = world
        self._effect = effect

    def run(self, *, fails: float = 0.0, silent: float = 0.0, may_be_late: bool = True) -> Steps:
        world = self._world
        life = world.life
        yield
        if life == world.life:
            yield from self._do(fails, silent, may_be_late)
        if life != world.life:
            self.outcome = Outcome.UNKNOWN
        self.completed = world.now

    def _do(self, fails: float, silent: float, may_be_late: bool) -> Steps:
        world = self._world
        if world.happens(fails):
            self.outcome = Outcome.FAILED
        elif world.happens(silent):
            if may_be_late and world.happens(0.3):
                world.later(self._effect)
            elif world.happens(0.5):
                self._effect()
        else:
            self.answer = self._effect()
            self.outcome = Outcome.OK
        yield
