"""kafka-python's integration tests, from its source distribution.

The distribution has the tests but not everything that they import; the missing pieces are written here.
They only have to satisfy imports: with KAFKA_URI set the tests start no broker of their own.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tools.conformance.broker import broker
from tools.conformance.expectations import known_failures
from tools.conformance.python_suite import PytestSuite, matching, source_distribution, virtual_environment
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.scenarios import ADMIN_LOGIN, MECHANISM, broker_with_logins
from tools.conformance.workspace import KAFKA_PYTHON_VERSION, SetupError, Workspace, unpack

NAME = "kafka-python"
PROTOCOL_VERSION = "4.2.0"

EXCLUDED = {
    "test_ssl_integration": "starts a Kafka of its own, in Java, to talk TLS with",
    "test_sasl_integration": "starts a Kafka of its own, in Java, to log in to",
}
"""Modules of test/integration that cannot be pointed at another broker."""

SERVICE_SHIM = '''\
"""Stands in for a module that the source distribution leaves out."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("this run starts no broker: KAFKA_URI names one")
'''

NEEDS_LOGIN = "test_create_describe_delete_acls"
"""ACLs are off where clients do not log in."""

LOGIN_PLUGIN = "posthouse_login"
LOGIN_PLUGIN_SOURCE = f'''\
"""A pytest plugin: admin clients of the suite, which name no login, log in."""

from kafka.admin import KafkaAdminClient

LOGIN = {{
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": {MECHANISM!r},
    "sasl_plain_username": {ADMIN_LOGIN[0]!r},
    "sasl_plain_password": {ADMIN_LOGIN[1]!r},
}}
plain = KafkaAdminClient.__init__
KafkaAdminClient.__init__ = lambda self, **configuration: plain(self, **(configuration | LOGIN))
'''


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    """The directory of the unpacked suite, ready to run."""
    directory = workspace.root / f"kafka-python-{KAFKA_PYTHON_VERSION}"
    if not directory.exists():
        say("fetching the source distribution")
        unpack(source_distribution(workspace, NAME, KAFKA_PYTHON_VERSION), directory)
    (directory / "servers" / PROTOCOL_VERSION / "kafka-bin").mkdir(parents=True, exist_ok=True)
    (directory / "test" / "__init__.py").touch()
    (directory / "test" / "service.py").write_text(SERVICE_SHIM)
    (directory / f"{LOGIN_PLUGIN}.py").write_text(LOGIN_PLUGIN_SOURCE)
    requirement = f"kafka-python[crc32c,lz4,snappy,zstd]=={KAFKA_PYTHON_VERSION}"
    virtual_environment(workspace, directory, [requirement], say)
    return directory


def run(
    workspace: Workspace,
    directory: Path,
    *,
    only: list[str],
    address: str | None,
    report: Callable[[TestResult], None],
) -> SuiteRun:
    with ExitStack() as stack:
        served = None
        if address is None:
            # One test wants sessions of 3 s, which Kafka, like us, refuses unless it is told not to.
            served = stack.enter_context(broker(workspace, NAME, group_min_session_ms="1000"))
            address = served.address
        suite = _suite(workspace, directory, address)
        results = suite.run("kafka-python", ["test/integration", *matching(only, NEEDS_LOGIN)], report)
        results = _with_second_tries(suite, results)
        if served is not None:
            if not served.alive:
                raise SetupError(f"the broker ended during the tests; see {served.log}")
            if not only or any(word in NEEDS_LOGIN for word in only):
                results |= _logged_in(workspace, directory, report)
    return SuiteRun(
        suite=NAME, version=KAFKA_PYTHON_VERSION, results=tuple(results.values()), excluded=EXCLUDED
    )


def _suite(workspace: Workspace, directory: Path, address: str, *options: str) -> PytestSuite:
    return PytestSuite(
        workspace=workspace,
        directory=directory,
        environment={"KAFKA_URI": f"kafka://{address}", "KAFKA_VERSION": PROTOCOL_VERSION},
        options=(*(f"--ignore=test/integration/{module}.py" for module in EXCLUDED), *options),
    )


def _logged_in(
    workspace: Workspace, directory: Path, report: Callable[[TestResult], None]
) -> dict[str, TestResult]:
    with broker_with_logins(workspace, f"{NAME}-logins") as served:
        suite = _suite(workspace, directory, served.address, "-p", LOGIN_PLUGIN)
        return suite.run("kafka-python-logins", ["test/integration", *matching([NEEDS_LOGIN])], report)


def _with_second_tries(suite: PytestSuite, results: dict[str, TestResult]) -> dict[str, TestResult]:
    """The client has a race of its own: a topic that is subscribed to while the first metadata request is
    under way is not asked for, and its consumer waits for minutes. It hits about one consumer in 200."""
    known = known_failures(NAME)
    failed = [
        test for test, each in results.items() if each.outcome is Outcome.FAILED and each.name not in known
    ]
    if not failed:
        return results
    again = suite.run("kafka-python-again", failed, lambda result: None)
    return results | {
        test: replace(each, detail="passed when tried again")
        for test, each in again.items()
        if each.outcome is Outcome.PASSED
    }
