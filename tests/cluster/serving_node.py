"""A node as a process.

`python -m tests.cluster.serving_node URL NAME [usual-times | busy]`

With `busy` it keeps house all the time, and hands over scopes without pauses.
"""

import sys
from unittest import mock

from posthouse.cli.serve import run
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.clock import SystemClock
from posthouse.node import Node
from posthouse.shared_storage import SharedStorages
from posthouse.storage.shared.membership.lease import LeaseTimes
from tests.cluster.busy_housekeeping import SETTINGS, busy
from tests.cluster.nodes import TIMES, node_settings


def main() -> None:
    url, name, *how = sys.argv[1:]
    times = LeaseTimes() if how == ["usual-times"] else TIMES
    if how == ["busy"]:
        mock.patch(SETTINGS, busy).start()
        mock.patch.multiple("posthouse.node_scopes", HANDOVER_SECONDS=0.0, SETTLED_SECONDS=0.0).start()
    run(
        LoadedSettings.of_program(node_settings(url, name)),
        hints=False,
        make=lambda settings: Node(settings, SharedStorages(settings.settings, SystemClock()), times=times),
    )


if __name__ == "__main__":
    main()
