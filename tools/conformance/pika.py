"""pika's acceptance tests, blocking and asynchronous, from Debian's source package."""

import hashlib
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tools.conformance.amqp_broker import AMQP_PORT, amqp_broker
from tools.conformance.python_suite import PytestSuite, matching, virtual_environment
from tools.conformance.results import SuiteRun, TestResult
from tools.conformance.workspace import PIKA_VERSION, SetupError, Workspace, unpack

NAME = "pika"
ARCHIVE = f"python-pika_{PIKA_VERSION}.orig.tar.gz"
PACKAGE = "python3-pika"
"""The binary package; its source lies beside it."""
SHA256 = "5eb71b9a0047c77d99378e525a2041fc50aae4a177b060f9825b3e2fdcc96fc4"

GROUPS = {
    "blocking": ("blocking_adapter_test.py", "enforce_one_basicget_test.py"),
    "asynchronous": ("async_adapter_tests.py",),
}
"""The second run every test on seven event loops: asyncio, gevent, tornado and four of pika's own."""

EXCLUDED = {
    "io_services_tests": "tests pika's own sockets and timers; there is no broker in it",
    "twisted_adapter_tests": "mocks the connection; there is no broker in it",
    "test_with_select_kqueue, of every asynchronous test": "kqueue is of BSD and macOS",
}


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    directory = workspace.root / f"{NAME}-{PIKA_VERSION}"
    if not directory.exists():
        say("fetching the source package")
        unpack(_download(workspace), directory)
    requirements = [f"pika=={PIKA_VERSION}", "gevent", "tornado", "twisted"]
    virtual_environment(workspace, directory, requirements, say)
    return directory


def _download(workspace: Workspace) -> Path:
    archive = workspace.downloads / ARCHIVE
    if not archive.exists():
        place = f"{_pool()}/{ARCHIVE}"
        try:
            with urllib.request.urlopen(place, timeout=60) as response:
                content: bytes = response.read()
        except (urllib.error.URLError, TimeoutError) as error:
            raise SetupError(f"{place} could not be fetched: {error}") from error
        if hashlib.sha256(content).hexdigest() != SHA256:
            raise SetupError(f"{place} is not the file that it was when its checksum was noted down.")
        archive.write_bytes(content)
    return archive


def _pool() -> str:
    """Where the package archive that this machine uses keeps the package, as apt tells it."""
    try:
        told = subprocess.run(
            ["apt-get", "download", "--print-uris", PACKAGE], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"apt does not know {PACKAGE}, beside which the tests lie: {error}") from error
    found = re.match(r"'([^']+)/[^/']+'", told)
    if found is None:
        raise SetupError(f"apt does not say where {PACKAGE} comes from; try apt-get update")
    return found[1]


def run(
    workspace: Workspace,
    directory: Path,
    *,
    only: list[str],
    address: str | None,
    report: Callable[[TestResult], None],
) -> SuiteRun:
    results: list[TestResult] = []
    with amqp_broker(workspace, NAME, address, f"127.0.0.1:{AMQP_PORT}"):
        suite = PytestSuite(
            workspace=workspace,
            directory=directory,
            options=("-c", os.devnull, "-o", "python_files=*test*.py"),  # or pytest would find our settings
        )
        for group, files in GROUPS.items():
            selection = [f"tests/acceptance/{file}" for file in files]
            found = suite.run(f"{NAME}-{group}", [*selection, *matching(only, without="kqueue")], report)
            results += [replace(each, group=group) for each in found.values()]
    return SuiteRun(suite=NAME, version=PIKA_VERSION, results=tuple(results), excluded=EXCLUDED)
