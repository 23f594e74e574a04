"""The suites: each runs a program against both brokers, and compares line by line."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.rocketmq.peers import ADDRESS, ENDPOINTS, POSTHOUSE, ROCKETMQ, SERVER_VERSION, in_namespace
from tests.java import jars
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.rocketmq.differences import Difference, known_differences
from tools.conformance.workspace import SetupError, Workspace

PROGRAM = Path(__file__).with_name("Answers.java")
_GRPC_PROGRAM = "tools.conformance.rocketmq.grpc_answers"
_LIMIT_SECONDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    code: str
    fields: str
    body: str
    remark: str = ""
    """For people: it is not compared."""

    def matches(self, other: "Answer") -> bool:
        return (self.code, self.fields, self.body) == (other.code, other.fields, other.body)

    def __str__(self) -> str:
        shown = (self.code, "" if self.fields == "{}" else self.fields, self.body)
        return " ".join(filter(None, shown))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersSuite:
    """The requests of one protocol."""

    name: str
    command: Callable[[Path, str | None], list[str]]
    """What sends them and prints the answers, with the jars of upstream, to a broker that is there already or
    to the one of the namespace."""

    def prepare(self, workspace: Workspace, say: Callable[[str], None], /) -> Path:
        say("fetching RocketMQ")
        try:
            return jars.fetched("rocketmq-server", jars.ROCKETMQ_SERVER)
        except jars.Unavailable as error:
            raise SetupError(str(error)) from None

    def run(
        self,
        workspace: Workspace,
        directory: Path,
        /,
        *,
        only: list[str],
        address: str | None,
        report: Callable[[TestResult], None],
    ) -> SuiteRun:
        """With an address, Posthouse is not started but expected there, and has no topics yet."""
        started = time.perf_counter()
        theirs = parsed(self._printed(workspace, directory, ROCKETMQ, None))
        own = parsed(self._printed(workspace, directory, POSTHOUSE, address))
        seconds = (time.perf_counter() - started) / max(1, len(theirs))
        results = compared(theirs, own, seconds, known_differences(self.name))
        results = [each for each in results if not only or any(part in each.name for part in only)]
        for each in results:
            report(each)
        return SuiteRun(suite=self.name, version=SERVER_VERSION, results=tuple(results), excluded={})

    def _printed(self, workspace: Workspace, directory: Path, peer: str, address: str | None) -> str:
        command = self.command(directory, address)
        if address is None:
            module = [sys.executable, "-m", "tools.conformance.rocketmq.peer"]
            command = in_namespace([*module, peer, str(directory), *command])
        log = workspace.logs / f"{self.name}-{peer.lower()}.log"
        with log.open("w") as errors:
            try:
                ended = subprocess.run(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    timeout=_LIMIT_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise SetupError(f"the requests to {peer} did not end in {_LIMIT_SECONDS} s") from None
            except FileNotFoundError as error:
                raise SetupError(f"there is no {error.filename} on this machine; install it") from None
        log.with_suffix(".answers").write_text(ended.stdout)
        if ended.returncode:
            raise SetupError(f"the requests to {peer} did not end well; what was said is in {log}")
        return ended.stdout


def parsed(printed: str) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for line in printed.splitlines():
        name, code, fields, body, remark = line.split("\t")
        assert name not in answers, f"two steps are called {name!r}"
        answers[name] = Answer(code=code, fields=fields, body=body, remark=remark)
    return answers


def compared(
    theirs: Mapping[str, Answer], own: Mapping[str, Answer], seconds: float, known: Mapping[str, Difference]
) -> list[TestResult]:
    """In the order of the steps; one that only one of them has got to fails. A known difference has the codes
    that are listed: with others it is a failure by another name, which nobody knows."""
    results = []
    for name in dict.fromkeys((*theirs, *own)):
        wanted, found = theirs.get(name), own.get(name)
        is_same = wanted is not None and found is not None and found.matches(wanted)
        listed = known.get(name)
        codes = tuple("" if each is None else each.code for each in (wanted, found))
        is_as_listed = is_same or listed is None or codes == (listed.theirs, listed.own)
        results.append(
            TestResult(
                name=name if is_as_listed else f"{name}: not the codes that are listed",
                outcome=Outcome.PASSED if is_same else Outcome.FAILED,
                seconds=seconds,
                detail=""
                if is_same
                else f"{ROCKETMQ}: {wanted or 'no answer'}; {POSTHOUSE}: {found or 'no answer'}",
            )
        )
    return results


def _remoting(directory: Path, address: str | None) -> list[str]:
    memory = ("-Xmx256m", "-XX:+UseSerialGC")
    class_path = jars.compiled(PROGRAM, directory)
    home = f"-Duser.home={jars.CACHE / 'home'}"
    return ["java", *memory, home, "-cp", class_path, PROGRAM.stem, address or ADDRESS]


def _grpc(directory: Path, address: str | None) -> list[str]:
    if address is not None:
        raise SetupError("topics are made by the remoting protocol: there is no one address to test")
    return [sys.executable, "-m", _GRPC_PROGRAM, ENDPOINTS, ADDRESS]


REMOTING = AnswersSuite(name="rocketmq-answers", command=_remoting)
GRPC = AnswersSuite(name="rocketmq-grpc-answers", command=_grpc)
