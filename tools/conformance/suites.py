"""The suites by name, and by the protocol that they speak."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.conformance import amqplib, kafka_path, kafka_python, librdkafka, librdkafka_build, pika
from tools.conformance.kombu import KOMBU, PY_AMQP
from tools.conformance.report import Progressing
from tools.conformance.results import SuiteRun, TestResult
from tools.conformance.rocketmq import answers, client_steps, upstream_tests
from tools.conformance.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    only: list[str]
    without: list[str]
    quick: bool
    jobs: int
    address: str | None
    """Of a broker that is there already."""


class Suite(Protocol):
    """What a module, or an object, offers that gets and runs a suite."""

    def prepare(self, workspace: Workspace, say: Callable[[str], None], /) -> Path: ...

    def run(
        self,
        workspace: Workspace,
        directory: Path,
        /,
        *,
        only: list[str],
        address: str | None,
        report: Callable[[TestResult], None],
    ) -> SuiteRun: ...


_PLAIN: dict[str, Suite] = {
    kafka_python.NAME: kafka_python,
    pika.NAME: pika,
    KOMBU.name: KOMBU,
    PY_AMQP.name: PY_AMQP,
    amqplib.NAME: amqplib,
    answers.REMOTING.name: answers.REMOTING,
    answers.GRPC.name: answers.GRPC,
    client_steps.NAME: client_steps,
    upstream_tests.NAME: upstream_tests,
}
"""All but librdkafka, whose tests come in more than one way."""

PROTOCOLS = {
    "kafka": (kafka_python.NAME, librdkafka.NAME),
    "amqp": (pika.NAME, KOMBU.name, PY_AMQP.name, amqplib.NAME),
    "rocketmq": (answers.REMOTING.name, answers.GRPC.name, client_steps.NAME, upstream_tests.NAME),
}
SUITES = tuple(suite for suites in PROTOCOLS.values() for suite in suites)


def named(name: str | None) -> tuple[str, ...]:
    """The suites that a suite's or a protocol's name stands for; without a name, all."""
    if name is None:
        return SUITES
    return PROTOCOLS.get(name, (name,))


def run(workspace: Workspace, suite: str, options: Options, progress: Progressing) -> SuiteRun:
    if suite == librdkafka.NAME:
        return _run_librdkafka(workspace, options, progress)
    plain = _PLAIN[suite]
    directory = plain.prepare(workspace, progress.step)
    progress.step("running")
    return plain.run(workspace, directory, only=options.only, address=options.address, report=progress.result)


def _run_librdkafka(workspace: Workspace, options: Options, progress: Progressing) -> SuiteRun:
    tests = librdkafka_build.prepare(workspace, progress.step)
    kafka = kafka_path.prepare(workspace, progress.step)
    progress.step("running")
    return librdkafka.run(
        workspace,
        tests,
        kafka,
        only=options.only,
        without=options.without,
        address=options.address,
        quick=options.quick,
        jobs=options.jobs,
        report=progress.result,
    )
