"""Publishers and consumers at perfect queues, and the history that they record."""

from collections import deque
from functools import partial

from tests.checker.history import Ack, Deliver, Drained, Outcome, Publish, Subscribe
from tests.checker.model.perfect_queue import PerfectQueue
from tests.checker.model.world import Steps, World

BUSY = "busy"
IDLE = "idle"
"""A queue without a consumer until the end."""


class QueueLoad:
    def __init__(self, world: World, lossy: bool) -> None:
        self._world = world
        self._queues = {name: PerfectQueue(world.chance) for name in (BUSY, IDLE)}
        for queue in self._queues.values():
            world.on_crash.append(queue.crash)
            if lossy:
                world.on_crash.append(queue.lose)

    def start(self) -> None:
        for _ in range(2):
            self._world.start(self._publish(self._world.new()))
        for _ in range(3):
            self._world.start(_Consumer(self._world, self._queues[BUSY]).run())

    def drain(self) -> None:
        for name, queue in self._queues.items():
            self._world.record(Drained(name, queue.drain()))

    def _publish(self, process: int) -> Steps:
        """Some publishes are under way together; some go to both queues."""
        world = self._world
        while not world.stopping:
            under_way = []
            for _ in range(world.chance.randrange(1, 4)):
                value = world.new()
                for name in (BUSY, IDLE) if world.happens(0.1) else (BUSY,):
                    effect = partial(self._queues[name].publish, value)
                    under_way.append((name, value, world.request(effect)))
                if world.happens(0.7):
                    yield
            for name, value, request in under_way:
                yield from request.run(fails=0.03, silent=0.05)
                times = (request.invoked, request.completed)
                world.record(Publish(process, *times, name, value, request.outcome))


class _Consumer:
    """Reads what the broker has sent it, maybe long after that; also when the connection is lost already."""

    def __init__(self, world: World, queue: PerfectQueue) -> None:
        self._world = world
        self._queue = queue
        self._process = world.new()
        self._says_so = world.happens(0.7)
        self._connection = 0
        self._unread: deque[tuple[int, int, bool]] = deque()

    def run(self) -> Steps:
        world = self._world
        while not world.stopping:
            yield from self._subscribe()
            life = world.life
            while life == world.life and not world.stopping and not world.happens(0.01):
                self._receive()
                if self._unread and world.happens(0.8):
                    yield from self._handle()
                yield
            while self._unread and world.happens(0.9):
                if world.happens(0.1):
                    self._queue.drop(self._connection)
                yield from self._handle()
            self._queue.drop(self._connection)
            self._unread.clear()

    def _subscribe(self) -> Steps:
        if self._says_so:
            self._world.record(Subscribe(self._process, self._world.now, BUSY))
        self._connection = self._world.new()
        yield

    def _receive(self) -> None:
        while len(self._unread) < 4:
            message = self._queue.take(self._connection)
            if message is None:
                return
            self._unread.append(message)

    def _handle(self) -> Steps:
        world = self._world
        place, value, again = self._unread.popleft()
        world.record(Deliver(self._process, world.now, BUSY, value, again))
        yield
        choice = world.chance.random()
        if choice < 0.4:
            yield from self._settle_for_good(place, value)
        elif choice < 0.8:
            world.record(Ack(self._process, world.now, world.now, BUSY, value, Outcome.UNKNOWN))
            yield
            self._queue.settle(place, self._connection, False)
        elif choice < 0.95:
            self._queue.give_back(place, self._connection)

    def _settle_for_good(self, place: int, value: int) -> Steps:
        request = self._world.request(partial(self._queue.settle, place, self._connection, True))
        yield from request.run(fails=0.02, silent=0.05, may_be_late=False)
        outcome = request.outcome
        if outcome is Outcome.OK and not request.answer:
            outcome = Outcome.UNKNOWN  # the connection was lost before
        self._world.record(
            Ack(self._process, request.invoked, request.completed, BUSY, value, outcome),
        )
