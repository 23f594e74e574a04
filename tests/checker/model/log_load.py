"""Producers, consumers and others at a perfect log, and the history that they record."""

from collections.abc import Callable
from functools import partial

from tests.checker.history import (
    Assign,
    CommitOffset,
    CommittedOffset,
    End,
    FinalRead,
    Outcome,
    Partition,
    Poll,
    Send,
    Watermarks,
)
from tests.checker.model.perfect_log import PerfectLog
from tests.checker.model.world import Request, Steps, World

GROUPS = ("billing", "mail")


class LogLoad:
    def __init__(self, world: World, lossy: bool) -> None:
        self._world = world
        self._partitions: list[Partition] = [("orders", index) for index in range(3)]
        self._log = PerfectLog(self._partitions)
        if lossy:
            world.on_crash.append(lambda: self._log.lose(world.chance))

    def start(self) -> None:
        for work in (self._produce, self._transact, self._watch, self._ask):
            for _ in range(2):
                self._world.start(self._repeat(work, self._world.new()))
        self._world.start(self._delete())
        for committed_only in (True, True, False):
            self._world.start(_Consumer(self._world, self._log, committed_only).run())

    def final_reads(self) -> None:
        """Some workloads read everything in the end, some only what is committed, most both."""
        which = self._world.chance.choice([(True, False)] * 3 + [(True,), (False,)])
        for partition, track in self._log.tracks.items():
            for committed_only in which:
                end = track.stable if committed_only else track.end
                records = self._log.read(partition, track.start, end, committed_only)
                self._world.record(FinalRead(partition, committed_only, track.start, end, records))

    def _repeat(self, work: Callable[[int], Steps], process: int) -> Steps:
        while not self._world.stopping:
            yield from work(process)
            yield

    def _partition(self) -> Partition:
        return self._world.chance.choice(self._partitions)

    def _produce(self, process: int) -> Steps:
        """Several sends under way together, which are done in their order."""
        sends = []
        for _ in range(self._world.chance.randrange(1, 5)):
            partition, value = self._partition(), self._world.new()
            effect = partial(self._log.append, partition, value, None)
            sends.append((partition, value, self._world.request(effect)))
            if self._world.happens(0.7):
                yield
        for partition, value, request in sends:
            yield from request.run(fails=0.03, silent=0.05)
            self._record_send(process, partition, value, request, None)

    def _record_send(
        self, process: int, partition: Partition, value: int, request: Request, transaction: int | None
    ) -> None:
        offset = request.answer if request.outcome is Outcome.OK else None
        assert offset is None or isinstance(offset, int)
        if self._world.happens(0.02):
            offset = None  # a retry of what was done before is acknowledged without an offset
        times = (request.invoked, request.completed)
        self._world.record(Send(process, *times, partition, value, request.outcome, offset, transaction))

    def _transact(self, process: int) -> Steps:
        """A transaction over some partitions. After a crash, or by chance, it is left open for a while."""
        world = self._world
        transaction, life = world.new(), world.life
        good = True
        for _ in range(world.chance.randrange(1, 6)):
            partition, value = self._partition(), world.new()
            request = world.request(partial(self._log.append, partition, value, transaction))
            yield from request.run(fails=0.02, silent=0.02, may_be_late=False)
            self._record_send(process, partition, value, request, transaction)
            good = good and request.outcome is Outcome.OK
        if world.happens(0.5):
            yield from self._commit_offset_within(process, transaction)
        if life == world.life and world.happens(0.95):
            yield from self._end(process, transaction, good and world.happens(0.8))
        if transaction not in self._log.ended:
            world.start(self._time_out(transaction))

    def _commit_offset_within(self, process: int, transaction: int) -> Steps:
        world = self._world
        group, partition, offset = (
            world.chance.choice(GROUPS),
            self._partition(),
            world.chance.randrange(1000),
        )
        request = world.request(partial(self._log.commit, group, partition, offset, transaction))
        yield from request.run(fails=0.05, silent=0.05, may_be_late=False)
        times = (request.invoked, request.completed)
        world.record(CommitOffset(process, *times, group, partition, offset, request.outcome, transaction))

    def _end(self, process: int, transaction: int, commit: bool) -> Steps:
        request = self._world.request(partial(self._log.end, transaction, commit))
        yield from request.run(fails=0.03, silent=0.05)
        times = (request.invoked, request.completed)
        self._world.record(End(process, *times, transaction, commit, request.outcome))

    def _time_out(self, transaction: int) -> Steps:
        """Some are open still when all is over."""
        for _ in range(self._world.chance.randrange(30)):
            yield
        if not self._world.stopping or self._world.happens(0.5):
            self._log.end(transaction, False)

    def _watch(self, process: int) -> Steps:
        partition = self._partition()
        track = self._log.tracks[partition]
        request = self._world.request(lambda: (track.start, track.stable, track.end))
        yield from request.run()
        if request.outcome is Outcome.OK:
            assert isinstance(request.answer, tuple)
            bounds = request.answer
            self._world.record(Watermarks(process, request.invoked, request.completed, partition, *bounds))

    def _ask(self, process: int) -> Steps:
        yield from ask(self._world, self._log, process, self._world.chance.choice(GROUPS), self._partition())

    def _delete(self) -> Steps:
        """The beginning of the log is deleted now and then."""
        while not self._world.stopping:
            yield
            if self._world.happens(0.02):
                partition = self._partition()
                end = self._log.tracks[partition].start + self._world.chance.randrange(20)
                self._log.delete(partition, end)


def ask(world: World, log: PerfectLog, process: int, group: str, partition: Partition) -> Steps:
    request = world.request(lambda: log.groups.get((group, partition)))
    yield from request.run()
    if request.outcome is Outcome.OK:
        assert request.answer is None or isinstance(request.answer, int)
        times = (request.invoked, request.completed)
        world.record(CommittedOffset(process, *times, group, partition, request.answer))


class _Consumer:
    """A member of a group: it polls, commits its progress, and begins anew after a rebalance or a crash."""

    def __init__(self, world: World, log: PerfectLog, committed_only: bool) -> None:
        self._world = world
        self._log = log
        self._committed_only = committed_only
        self._process = world.new()
        self._group = world.chance.choice(GROUPS)
        self._positions: dict[Partition, int] = {}

    def run(self) -> Steps:
        while not self._world.stopping:
            life = self._world.life
            yield from self._join()
            while life == self._world.life and not self._world.stopping:
                yield from self._poll()
                if self._world.happens(0.2):
                    yield from self._commit()
                if self._world.happens(0.05):
                    break

    def _join(self) -> Steps:
        chance = self._world.chance
        owned = chance.sample(list(self._log.tracks), chance.randint(1, len(self._log.tracks)))
        positions: dict[Partition, int | None] = {}
        for partition in owned:
            yield from ask(self._world, self._log, self._process, self._group, partition)
            track = self._log.tracks[partition]
            position = chance.choice([track.start, track.end, chance.randint(track.start, track.end)])
            self._positions[partition] = position
            positions[partition] = position if self._world.happens(0.7) else None
        self._positions = {partition: self._positions[partition] for partition in owned}
        self._world.record(Assign(self._process, self._world.now, positions))

    def _poll(self) -> Steps:
        positions = dict(self._positions)
        request = self._world.request(lambda: self._fetch(positions))
        yield from request.run()
        if request.outcome is Outcome.OK:
            assert isinstance(request.answer, list)
            self._positions = positions
            times = (request.invoked, request.completed)
            self._world.record(Poll(self._process, *times, self._committed_only, request.answer))

    def _fetch(self, positions: dict[Partition, int]) -> list[tuple[Partition, int, int]]:
        records = []
        for partition, position in positions.items():
            track = self._log.tracks[partition]
            if position < track.start:
                position = self._world.chance.choice([track.start, track.end])
            end = position + self._world.chance.randrange(8)
            found = self._log.read(partition, position, end, self._committed_only)
            records += [(partition, offset, value) for offset, value in found]
            limit = track.stable if self._committed_only else track.end
            positions[partition] = max(position, min(end, limit))
        return records

    def _commit(self) -> Steps:
        partition = self._world.chance.choice(list(self._positions))
        offset = self._positions[partition]
        request = self._world.request(partial(self._log.commit, self._group, partition, offset, None))
        yield from request.run(fails=0.05, silent=0.1)
        times = (request.invoked, request.completed)
        outcome = request.outcome
        self._world.record(CommitOffset(self._process, *times, self._group, partition, offset, outcome))
