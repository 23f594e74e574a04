"""The same surroundings for every run, and names that no other test uses.

Hypothesis draws the same examples in every run of `make test`, and new ones in `make explore`.
"""

import gc
import itertools
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from posthouse.settings import Settings
from tests.long import skip_long
from tests.postgres import PostgresServer, migrated_server
from tests.rewriting import import_share
from tests.stored import IS_SHARED, shared_places
from tests.surroundings import isolate

if TYPE_CHECKING:
    from tests.certificates import Authority

isolate(os.environ)

# A shell that runs this in the background ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without deadlines: how long an example takes says more of the machine's other work than of the test.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")

_numbers = itertools.count()
_data = Path.cwd() / Settings().data
_had_data = _data.exists()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Brokers of tests write into directories of their own, and leave nothing where the tests are run."""
    global _had_data
    if not _had_data and _data.exists():
        _had_data = True  # named once, for the first test that ends afterwards
        raise AssertionError(f"{item.nodeid}, or a test beside it, has made {_data}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Only for `make test`, which asks for loadgroup; otherwise xdist's own."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.distribution import LongestFirst  # needs pytest-xdist

    return LongestFirst(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Little that a collection makes is garbage: to look for it took a fifth of the time, and a third where
    modules are rewritten."""
    gc.disable()
    import_share(session.config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_long(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The many tests known by now stay until the end: no full collection needs to look at them again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def name() -> str:
    """Unique among all runs: a RabbitMQ in the place of Posthouse keeps what earlier runs declared."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic() -> str:
    """Unique in this process, and short."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process."""
    with migrated_server() as server:
        yield server


@pytest.fixture(scope="session")
def shared_storages(request: pytest.FixtureRequest) -> Iterator[None]:
    """For `tests.stored.stored_in`."""
    if not IS_SHARED:
        yield
        return
    with shared_places(request.getfixturevalue("postgres")):
        yield


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> "Authority":
    """Signs the certificates of brokers and clients."""
    from tests.certificates import Authority  # few tests need its library

    return Authority(tmp_path_factory.mktemp("authority"))
