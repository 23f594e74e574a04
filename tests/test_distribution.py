"""Tests begin in the order that makes the whole run short."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.distribution import LONGEST, WITH_PROCESSES, LongestFirst

SPARK, LONG = LONGEST[0], "tests/torture/cluster/test_cluster_rounds.py"


class Worker:
    """Notes which tests it is given."""

    shutting_down = False

    def __init__(self) -> None:
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        pass


def test_whole_files_and_the_longest_first() -> None:
    tests = [f"tests/a.py::test_{number}" for number in range(5)]
    tests += ["tests/b.py::One::test_x", "tests/b.py::test_y", f"{LONG}::test_1"]
    tests += [f"tests/c.py::test_z@{SPARK}", f"tests/d.py::test_z[a@b]@{SPARK}"]
    tests += [f"{WITH_PROCESSES[0]}/test_e.py::test_e"]
    option: Any = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: ["popen"])
    scheduler = LongestFirst(config)
    worker = Worker()
    scheduler.add_node(worker)
    scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    for index in list(range(len(tests))):
        if index in worker.given:
            scheduler.mark_test_complete(worker, index)
    first = [tests[index] for index in worker.given[:5]]
    assert first == [tests[8], tests[9], tests[7], tests[10], tests[0]]


@pytest.mark.parametrize("name", [each for each in (*LONGEST, *WITH_PROCESSES) if "/" in each])
def test_the_files_are_there(name: str) -> None:
    assert (Path(__file__).parent.parent / name).exists(), "it has another name now"
