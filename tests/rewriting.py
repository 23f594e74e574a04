"""Each worker of `make test` first imports its share of the test modules, and collects all of them then.

In a fresh checkout nothing is compiled yet. Pytest rewrites the assertions of each module, which takes twice
as long as all the rest of a collection, and workers that begin with the same file would all do that for every
file. So each imports some first, for which pytest keeps what it has compiled, and reads what the others have
kept meanwhile. No worker waits for another one.
"""

import contextlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent


def import_share(config: pytest.Config) -> None:
    """Only if all tests are wanted, by several workers."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    for name in share(number, worker["workercount"]):
        # The collection imports it again, and tells what is wrong with it, or why it is skipped.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            import_module(name)


def share(number: int, workers: int) -> Sequence[str]:
    """The modules of one worker, from all directories."""
    files = sorted(_ROOT.glob("tests/**/test_*.py"))
    return [".".join(each.relative_to(_ROOT).with_suffix("").parts) for each in files[number::workers]]
