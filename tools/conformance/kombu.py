"""The integration tests of kombu, the transport of Celery, and of py-amqp, on which it is built."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.amqp_broker import amqp_broker
from tools.conformance.python_suite import PytestSuite, matching, source_distribution, virtual_environment
from tools.conformance.results import SuiteRun, TestResult
from tools.conformance.workspace import KOMBU_VERSION, PY_AMQP_VERSION, Workspace, unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One of the two. Their marks for tests to be tried again have no effect here: once is enough."""

    name: str
    package: str
    version: str
    tests: str
    without: str
    """A word in the names of tests that are left out."""
    excluded: dict[str, str]

    def prepare(self, workspace: Workspace, say: Callable[[str], None]) -> Path:
        directory = workspace.root / f"{self.name}-{self.version}"
        if not directory.exists():
            say("fetching the source distribution")
            unpack(source_distribution(workspace, self.package, self.version), directory)
        virtual_environment(workspace, directory, [f"{self.package}=={self.version}"], say)
        return directory

    def run(
        self,
        workspace: Workspace,
        directory: Path,
        *,
        only: list[str],
        address: str | None,
        report: Callable[[TestResult], None],
    ) -> SuiteRun:
        with amqp_broker(workspace, self.name, address, "127.0.0.1:0") as broker:
            host, _, port = broker.rpartition(":")
            suite = PytestSuite(
                workspace=workspace,
                directory=directory,
                environment={"RABBITMQ_HOST": host, "RABBITMQ_5672_TCP": port},
                options=("-o", "python_classes=test_*", "-W", "ignore::pytest.PytestUnknownMarkWarning"),
            )
            results = suite.run(self.name, [self.tests, *matching(only, self.without)], report)
        return SuiteRun(
            suite=self.name, version=self.version, results=tuple(results.values()), excluded=self.excluded
        )


KOMBU = Suite(
    name="kombu",
    package="kombu",
    version=KOMBU_VERSION,
    tests="t/integration/test_py_amqp.py",
    without="",
    excluded={
        f"test_{other}": f"is about {product}"
        for other, product in {
            "kafka": "the Kafka protocol",
            "mongodb": "MongoDB",
            "pgmq": "PostgreSQL",
            "redis": "Redis",
            "redis_brpop_qos": "Redis",
            "sqs": "Amazon SQS",
        }.items()
    },
)

PY_AMQP = Suite(
    name="py-amqp",
    package="amqp",
    version=PY_AMQP_VERSION,
    tests="t/integration/test_rmq.py",
    without="tls",
    excluded={
        "test_connect[tls]": "needs a broker with TLS",
        "test_publish_consume[tls-…]": "needs a broker with TLS",
        "test_publish_get[tls], and with short headers": "needs a broker with TLS",
        "test_tls_connect_fails": "needs a broker with TLS",
        "test_tls_default_certs": "connects to badssl.com",
        "test_tls_no_default_certs_fails": "connects to badssl.com",
        "test_integration": "mocks the connection; there is no broker in it",
    },
)
