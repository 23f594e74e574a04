"""Tasks of streams groups: all of them, level, where their state is."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from posthouse.broker.groups.streams_assignor import Task, Tasks, Worker, assign_sticky
from posthouse.broker.groups.streams_topology import ConfiguredSubtopology
from posthouse.model.ids import MemberId
from tests.broker.groups.streams_clients import shown


def subtopology(id: str, tasks: int, *, stateful: bool = False) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(id=id, tasks=tasks, read=(id,), is_stateful=stateful)


def workers(**processes: str) -> dict[MemberId, Worker]:
    return {MemberId(name): Worker(process=process) for name, process in processes.items()}


def again(before: dict[MemberId, Worker], made: dict[MemberId, Tasks]) -> dict[MemberId, Worker]:
    return {
        member: Worker(process=worker.process, current=made.get(member, Tasks()))
        for member, worker in before.items()
    }


def named(made: dict[MemberId, Tasks]) -> dict[str, list[str]]:
    return {member: shown(tasks) for member, tasks in made.items()}


def test_tasks_are_spread_evenly() -> None:
    made = assign_sticky(workers(a="1", b="2"), [subtopology("0", 4)])
    assert named(made) == {"a": ["0_0", "0_2"], "b": ["0_1", "0_3"]}
    assert assign_sticky({}, [subtopology("0", 4)]) == {}
    assert named(assign_sticky(workers(a="1"), [])) == {"a": []}


def test_processes_with_more_members_get_more() -> None:
    made = assign_sticky(workers(a="1", b="2", c="2"), [subtopology("0", 6)])
    assert {member: len(tasks.active) for member, tasks in made.items()} == {"a": 2, "b": 2, "c": 2}


def test_nothing_moves_without_need() -> None:
    group = workers(a="1", b="2", c="3")
    first = assign_sticky(group, [subtopology("0", 6), subtopology("1", 3)])
    assert assign_sticky(again(group, first), [subtopology("0", 6), subtopology("1", 3)]) == first
    del group[MemberId("c")]
    second = assign_sticky(again(group, first), [subtopology("0", 6), subtopology("1", 3)])
    assert all(first[member].active <= second[member].active for member in group)


def test_a_newcomer_gets_its_share_from_the_others() -> None:
    alone = workers(a="1")
    first = assign_sticky(alone, [subtopology("0", 4)])
    second = assign_sticky(again(workers(a="1", b="2"), first), [subtopology("0", 4)])
    assert named(second) == {"a": ["0_0", "0_1"], "b": ["0_2", "0_3"]}


def test_standbys_are_on_other_processes() -> None:
    stateful = [subtopology("0", 2, stateful=True), subtopology("1", 2)]
    made = assign_sticky(workers(a="1", b="2"), stateful, standbys=1)
    for tasks in made.values():
        assert not tasks.active & tasks.standby
        assert {task.subtopology for task in tasks.standby} <= {"0"}
    assert Counter(task for tasks in made.values() for task in tasks.standby) == {
        Task("0", 0): 1,
        Task("0", 1): 1,
    }
    one_process = assign_sticky(workers(a="1", b="1"), stateful, standbys=1)
    assert not any(tasks.standby for tasks in one_process.values())


def test_a_standby_takes_over() -> None:
    stateful = [subtopology("0", 3, stateful=True)]
    group = workers(a="1", b="2", c="3")
    first = assign_sticky(group, stateful, standbys=1)
    lost = first[MemberId("a")].active
    [heir] = [member for member in ("b", "c") if first[MemberId(member)].standby & lost]
    del group[MemberId("a")]
    second = assign_sticky(again(group, first), stateful, standbys=1)
    assert lost <= second[MemberId(heir)].active


@given(
    processes=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    later=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    sizes=st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=3),
    standbys=st.integers(0, 2),
)
def test_whatever_the_group(
    processes: list[int], later: list[int], sizes: list[tuple[int, bool]], standbys: int
) -> None:
    subtopologies = [
        subtopology(str(number), size, stateful=stateful) for number, (size, stateful) in enumerate(sizes)
    ]
    everything = {Task(each.id, index) for each in subtopologies for index in range(each.tasks)}
    stateful = {task for task in everything if sizes[int(task.subtopology)][1]}
    first = workers(**{f"m{index}": str(process) for index, process in enumerate(processes)})
    second = workers(
        **{f"m{index + len(processes) // 2}": str(process) for index, process in enumerate(later)}
    )
    made: dict[MemberId, Tasks] = {}
    for group in (first, second, second):
        made = assign_sticky(again(group, made), subtopologies, standbys)
        assert made.keys() == group.keys()
        active = Counter(task for tasks in made.values() for task in tasks.active)
        assert active == Counter(everything)
        copies: dict[str, Counter[Task]] = {}
        for member, tasks in made.items():
            held = copies.setdefault(group[member].process, Counter())
            held.update(tasks.active)
            held.update(tasks.standby)
        assert all(times == 1 for held in copies.values() for times in held.values())
        standby = Counter(task for tasks in made.values() for task in tasks.standby)
        wanted = min(standbys, len(copies) - 1)
        assert standby == Counter({task: wanted for task in stateful if wanted})
