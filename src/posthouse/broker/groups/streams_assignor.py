"""Assignment of tasks to members of a streams group. A pure function.

Every task is active at exactly one member: the previous one while that has room, otherwise a member with a
standby of its state, otherwise one of the process with the lowest load per member. Standbys of stateful tasks
are placed on other processes than the active task. This is Kafka's assignor `sticky`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from posthouse.broker.groups.streams_topology import ConfiguredSubtopology
from posthouse.model.ids import MemberId


class Task(NamedTuple):
    subtopology: str
    partition: int


NO_TASKS: frozenset[Task] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __and__(self, other: "Tasks") -> "Tasks":
        return Tasks(
            active=self.active & other.active,
            standby=self.standby & other.standby,
            warmup=self.warmup & other.warmup,
        )

    def __sub__(self, other: "Tasks") -> "Tasks":
        return Tasks(
            active=self.active - other.active,
            standby=self.standby - other.standby,
            warmup=self.warmup - other.warmup,
        )

    def __or__(self, other: "Tasks") -> "Tasks":
        return Tasks(
            active=self.active | other.active,
            standby=self.standby | other.standby,
            warmup=self.warmup | other.warmup,
        )

    def __le__(self, other: "Tasks") -> bool:
        return not self - other


NOTHING = Tasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    process: str
    """Members of one process share its state."""
    current: Tasks = NOTHING
    """The tasks assigned so far."""


@dataclass(slots=True)
class _Process:
    name: str
    members: dict[MemberId, int] = field(default_factory=dict)
    """Members with their numbers of tasks."""
    tasks: set[Task] = field(default_factory=set)
    count: int = 0
    _by_count: list[tuple[int, MemberId]] = field(default_factory=list)
    """A heap. Entries with an outdated count are skipped."""

    @property
    def load(self) -> float:
        return self.count / len(self.members)

    def add_member(self, member: MemberId) -> None:
        self.members[member] = 0
        heappush(self._by_count, (0, member))

    def add_task(self, member: MemberId, task: Task) -> int:
        self.members[member] += 1
        self.count += 1
        self.tasks.add(task)
        heappush(self._by_count, (self.members[member], member))
        return self.members[member]

    def least(self) -> MemberId:
        """The member with the fewest tasks."""
        while self._by_count[0][0] != self.members[self._by_count[0][1]]:
            heappop(self._by_count)
        return self._by_count[0][1]


class _Quota:
    """How many tasks a member may keep; decreases when full members took more than their share."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members

    @property
    def limit(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def reached(self, count: int) -> None:
        if count == self.limit:
            self._members -= 1
            self._tasks -= count


def assign_sticky(
    workers: Mapping[MemberId, Worker], subtopologies: Sequence[ConfiguredSubtopology], standbys: int = 0
) -> dict[MemberId, Tasks]:
    if not workers:
        return {}
    return _Assignment(workers, subtopologies, standbys).made()


class _Assignment:
    def __init__(
        self,
        workers: Mapping[MemberId, Worker],
        subtopologies: Sequence[ConfiguredSubtopology],
        standbys: int,
    ) -> None:
        self._workers = workers
        self._standbys = standbys
        self._all = [Task(each.id, index) for each in subtopologies for index in range(each.tasks)]
        stateful = {each.id for each in subtopologies if each.is_stateful}
        self._stateful = [task for task in self._all if task.subtopology in stateful]
        self._active_quota = _Quota(len(self._all), len(workers))
        self._quota = _Quota(len(self._all) + standbys * len(self._stateful), len(workers))
        self._processes: dict[str, _Process] = {}
        self._was_active: dict[Task, MemberId] = {}
        self._was_standby: defaultdict[Task, list[MemberId]] = defaultdict(list)
        self._active: defaultdict[MemberId, set[Task]] = defaultdict(set)
        self._standby: defaultdict[MemberId, set[Task]] = defaultdict(set)
        for member, worker in workers.items():
            self._processes.setdefault(worker.process, _Process(worker.process)).add_member(member)
            self._was_active |= dict.fromkeys(worker.current.active, member)
            for task in worker.current.standby:
                self._was_standby[task].append(member)

        self._by_load = sorted((0.0, name) for name in self._processes)
        """A heap. Entries with an outdated load are skipped."""

    def made(self) -> dict[MemberId, Tasks]:
        self._assign_active()
        if self._standbys:
            self._assign_standbys()
        return {
            member: Tasks(
                active=frozenset(self._active.get(member, ())),
                standby=frozenset(self._standby.get(member, ())),
            )
            for member in self._workers
        }

    def _assign_active(self) -> None:
        left = []
        for task in sorted(self._all, key=_by_partition):
            before = self._was_active.get(task)
            if before is not None and self._count(before) < self._active_quota.limit:
                self._give(task, before, active=True)
            else:
                left.append(task)
        moving = []
        for task in left:
            before = self._with_state(task)
            if before is not None and self._count(before) < self._active_quota.limit:
                self._give(task, before, active=True)
            else:
                moving.append(task)
        for task in sorted(moving):
            process = self._least_loaded()
            assert process is not None
            self._give(task, process.least(), active=True)

    def _assign_standbys(self) -> None:
        left: list[tuple[Task, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for missing in range(self._standbys, 0, -1):
                member = self._standby_again(task)
                if member is None:
                    left.append((task, missing))
                    break
                self._give(task, member, active=False)
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                process = self._least_loaded(without=task)
                if process is None:
                    break  # more copies than processes: the rest stays unassigned
                self._give(task, process.least(), active=False)

    def _standby_again(self, task: Task) -> MemberId | None:
        """A member that already has the task's state, and room."""
        was_active = self._was_active.get(task)
        for member in (was_active, self._with_state(task, free_of=task)):
            if member is None or task in self._process(member).tasks:
                continue
            if self._count(member) < self._quota.limit:
                return member
        return None

    def _with_state(self, task: Task, free_of: Task | None = None) -> MemberId | None:
        """The least loaded member that had a standby of the task."""
        members = [
            member
            for member in self._was_standby.get(task, ())
            if free_of is None or free_of not in self._process(member).tasks
        ]
        return min(
            members,
            key=lambda member: (self._process(member).load, self._count(member), member),
            default=None,
        )

    def _least_loaded(self, without: Task | None = None) -> _Process | None:
        """The process with the lowest load per member that does not have the task."""
        passed = []
        found = None
        while self._by_load and found is None:
            load, name = heappop(self._by_load)
            process = self._processes[name]
            if load != process.load:
                continue
            passed.append((load, name))
            if without is None or without not in process.tasks:
                found = process
        for entry in passed:
            heappush(self._by_load, entry)
        return found

    def _process(self, member: MemberId) -> _Process:
        return self._processes[self._workers[member].process]

    def _count(self, member: MemberId) -> int:
        return self._process(member).members[member]

    def _give(self, task: Task, member: MemberId, *, active: bool) -> None:
        process = self._process(member)
        count = process.add_task(member, task)
        heappush(self._by_load, (process.load, process.name))
        (self._active if active else self._standby)[member].add(task)
        if active:
            self._active_quota.reached(count)
        self._quota.reached(count)


def _by_partition(task: Task) -> tuple[int, str]:
    return task.partition, task.subtopology
