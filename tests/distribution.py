"""How `make test` spreads tests over its workers: whole files, and those that take longest first.

pytest-xdist's `loadgroup` gives out single tests unless they have a group. Then each worker makes again what
the tests of a file share, and a long group may begin last, while the other workers have nothing left to do.
"""

from collections import OrderedDict
from typing import Any, Final

from xdist.scheduler import LoadGroupScheduling

LONGEST: Final = (
    "spark",
    "spark-cluster",
    "tests/frameworks/kafka/test_faust.py",
    "torture",
    "survival",
    "tests/torture/cluster/test_cluster_rounds.py",
    "tests/protocols/admin/test_openapi.py",
    "tests/simulation/test_seeds.py",
    "tests/simulation/cluster/test_cluster_seeds.py",
    "tests/crash/test_kill.py",
    "tests/cli/test_cli_storage.py",
    "tests/bench/test_scale_scenarios.py",
    "hostile",
    "tests/bench/test_cluster_scenarios.py",
    "tests/storage/shared/test_upkeep_crashes.py",
    "tests/storage/shared/test_against_memory.py",
    "tests/broker/schedule/test_schedule_model.py",
    "tests/broker/queues/test_queue_model.py",
)
"""Groups, and files without one, in the order in which they begin. The others follow, most tests first."""
WITH_PROCESSES: Final = (
    "tests/bench",
    "tests/cli",
    "tests/clients",
    "tests/cluster",
    "tests/consistency",
    "tests/crash",
    "tests/frameworks",
    "tests/hostile",
    "tests/simulation",
    "tests/spark",
    "tests/storage/shared",
    "tests/tools",
    "tests/torture",
    "tests/webhooks",
)
"""Where one test may take long: servers, brokers and clients are started. These files begin before those
whose tests only call functions: the last files to begin are short then."""
_RANKS: Final = {name: rank for rank, name in enumerate(LONGEST)}


def rank(scope: str) -> int:
    if scope in _RANKS:
        return _RANKS[scope]
    return len(_RANKS) + (not scope.startswith(tuple(f"{each}/" for each in WITH_PROCESSES)))


class LongestFirst(LoadGroupScheduling):  # type: ignore[misc]
    workqueue: OrderedDict[str, dict[str, bool]]

    def _split_scope(self, nodeid: str) -> str:
        """The group of the test, or its file."""
        scope: str = super()._split_scope(nodeid)
        return scope.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        if not any(self.assigned_work.values()):  # the first one: the queue has just been made
            units = sorted(self.workqueue.items(), key=lambda unit: rank(unit[0]))
            self.workqueue = OrderedDict(units)
        super()._assign_work_unit(node)
