"""The suite: runs the program against both brokers, and compares line by line."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.rocketmq.peers import POSTHOUSE, ROCKETMQ, SERVER_VERSION, in_namespace
from tests.java import jars
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.workspace import SetupError, Workspace

NAME = "rocketmq-answers"
PROGRAM = Path(__file__).with_name("Answers.java")
_LIMIT_SECONDS = 300


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


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    say("fetching RocketMQ")
    try:
        directory = jars.fetched("rocketmq-server", jars.ROCKETMQ_SERVER)
    except jars.Unavailable as error:
        raise SetupError(str(error)) from None
    jars.compiled(PROGRAM, directory)
    return directory


def run(
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
    theirs = parsed(_printed(workspace, directory, ROCKETMQ, None))
    own = parsed(_printed(workspace, directory, POSTHOUSE, address))
    seconds = (time.perf_counter() - started) / max(1, len(theirs))
    results = compared(theirs, own, seconds)
    results = [each for each in results if not only or any(part in each.name for part in only)]
    for each in results:
        report(each)
    return SuiteRun(suite=NAME, version=SERVER_VERSION, results=tuple(results), excluded={})


def parsed(printed: str) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for line in printed.splitlines():
        name, code, fields, body, remark = line.split("\t")
        assert name not in answers, f"two steps are called {name!r}"
        answers[name] = Answer(code=code, fields=fields, body=body, remark=remark)
    return answers


def compared(theirs: dict[str, Answer], own: dict[str, Answer], seconds: float) -> list[TestResult]:
    """In the order of the steps; one that only one of them has got to fails."""
    results = []
    for name in dict.fromkeys((*theirs, *own)):
        wanted, found = theirs.get(name), own.get(name)
        is_same = wanted is not None and found is not None and found.matches(wanted)
        detail = (
            "" if is_same else f"{ROCKETMQ}: {wanted or 'no answer'}; {POSTHOUSE}: {found or 'no answer'}"
        )
        outcome = Outcome.PASSED if is_same else Outcome.FAILED
        results.append(TestResult(name=name, outcome=outcome, seconds=seconds, detail=detail))
    return results


def _printed(workspace: Workspace, directory: Path, peer: str, address: str | None) -> str:
    class_path = jars.compiled(PROGRAM, directory)
    if address is not None:
        command = ["java", "-Xmx256m", f"-Duser.home={jars.CACHE / 'home'}", "-cp", class_path]
        command += [PROGRAM.stem, address]
    else:
        module = [sys.executable, "-m", "tools.conformance.rocketmq.peer"]
        command = in_namespace([*module, peer, str(directory), class_path])
    log = workspace.logs / f"rocketmq-{peer.lower()}.log"
    with log.open("w") as errors:
        try:
            ended = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=_LIMIT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"the requests to {peer} did not end in {_LIMIT_SECONDS} s") from None
        except FileNotFoundError as error:
            raise SetupError(f"there is no {error.filename} on this machine; install it") from None
    log.with_suffix(".answers").write_text(ended.stdout)
    if ended.returncode:
        raise SetupError(f"the requests to {peer} did not end well; what was said is in {log}")
    return ended.stdout
