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
_RANKS: Final = {name: rank for rank, name in enumerate(LONGEST)}


class LongestFirst(LoadGroupScheduling):  # type: ignore[misc]
    workqueue: OrderedDict[str, dict[str, bool]]

    def _split_scope(self, nodeid: str) -> str:
        """The group of the test, or its file."""
        scope: str = super()._split_scope(nodeid)
        return scope.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        if not any(self.assigned_work.values()):  # the first one: the queue has just been made
            units = sorted(self.workqueue.items(), key=lambda unit: _RANKS.get(unit[0], len(_RANKS)))
            self.workqueue = OrderedDict(units)
        super()._assign_work_unit(node)
