"""Publishers and consumers of a perfect group, and the history that they record."""

from collections import deque
from collections.abc import Callable
from functools import partial

from tests.checker.history import Ack, Bury, ChangeLease, DeadLetters, Drained, Lease, Outcome, Publish
from tests.checker.model.perfect_group import MOST_DELIVERIES, PARTITION, GroupMessage, PerfectGroup
from tests.checker.model.world import Steps, World

GROUP = "group"
_LANES = "abc"
_LEASES = (10, 60, 400)

_Held = tuple[GroupMessage, int]
"""A message, and the number of its delivery."""


class GroupLoad:
    def __init__(self, world: World) -> None:
        self._world = world
        self._group = PerfectGroup()
        world.on_crash.append(self._group.crash)

    def start(self) -> None:
        self._world.start(self._publish())
        for _ in range(3):
            self._world.start(_Consumer(self._world, self._group).run())

    def drain(self) -> None:
        self._world.record(Drained(GROUP, self._group.left()))
        self._world.record(DeadLetters(GROUP, MOST_DELIVERIES, self._group.dead))

    def _publish(self) -> Steps:
        world = self._world
        while not world.stopping:
            value = world.new()
            request = world.request(partial(self._group.publish, value, world.chance.choice(_LANES)))
            yield from request.run(fails=0.03, silent=0.05)
            times = (request.invoked, request.completed)
            world.record(Publish(world.new(), *times, GROUP, value, request.outcome))


class _Consumer:
    def __init__(self, world: World, group: PerfectGroup) -> None:
        self._world = world
        self._group = group
        self._process = world.new()
        self._held: deque[_Held] = deque()

    def run(self) -> Steps:
        while not self._world.stopping:
            yield from self._receive()
            while self._held:
                yield from self._handle()

    def _receive(self) -> Steps:
        world, lasts = self._world, self._world.chance.choice(_LEASES)
        found: list[tuple[GroupMessage, int, int]] = []

        def take() -> None:
            found.extend(self._group.take(world.now, lasts, world.chance.randrange(1, 4)))

        request = world.request(take)
        yield from request.run(fails=0.02)
        if request.outcome is not Outcome.OK:
            return
        for message, delivery, attempt in found:
            world.record(
                Lease(
                    *(self._process, request.invoked, request.completed, GROUP, message.value),
                    *(PARTITION, message.offset, message.lane, attempt, lasts),
                )
            )
            self._held.append((message, delivery))

    def _handle(self) -> Steps:
        chance, first = self._world.chance.random(), self._held[0]
        if chance < 0.6:
            yield from self._settle(first, self._group.settle, Ack)
        elif chance < 0.65:
            yield from self._settle(first, self._group.bury, Bury)
        elif chance < 0.75:
            yield from self._change(first, 200)
        elif chance < 0.95:
            for each in self._behind(first):
                yield from self._change(each, 0)
                self._held.remove(each)
        else:
            for each in self._behind(first):
                self._held.remove(each)

    def _behind(self, first: _Held) -> list[_Held]:
        return [each for each in self._held if each[0].lane == first[0].lane]

    def _settle(
        self, held: _Held, do: Callable[[GroupMessage, int, int], bool], kind: type[Ack | Bury]
    ) -> Steps:
        request = self._world.request(lambda: do(*held, self._world.now))
        yield from request.run(silent=0.03, may_be_late=False)
        outcome = _said(request.outcome, request.answer)
        times = (request.invoked, request.completed)
        self._world.record(kind(self._process, *times, GROUP, held[0].value, outcome))
        self._held.remove(held)

    def _change(self, held: _Held, lasts: int) -> Steps:
        request = self._world.request(lambda: self._group.change(*held, self._world.now, lasts))
        yield from request.run(silent=0.03, may_be_late=False)
        outcome = _said(request.outcome, request.answer)
        times = (request.invoked, request.completed)
        self._world.record(ChangeLease(self._process, *times, GROUP, held[0].value, lasts, outcome))


def _said(outcome: Outcome, answer: object) -> Outcome:
    return Outcome.FAILED if outcome is Outcome.OK and not answer else outcome
