"""An application that is killed: numbers, each in a row of its database and in a record of its topic.

    python -m tests.consistency.two_phase_process URL KAFKA ID          runs until it is killed
    python -m tests.consistency.two_phase_process URL KAFKA ID --forks  a process for each line of its input

A line is `STEP COUNT HOW`: the process commits COUNT numbers and kills itself at the step of the last one;
"-" is for one that comes to its end. HOW is how it recovers: "well", or "badly" as a negative control, which
knows nothing of the row. The answer is how the process ended.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

import psycopg

from posthouse.client.two_phase_producer import PreparedTransaction
from posthouse.consistency.two_phase import Step, TwoPhase
from posthouse.consistency.two_phase_row import Connection, TwoPhaseRow

TOPIC = "numbers"
FIRST_STEPS = (Step.LOG_FENCED, Step.DATABASE_FENCED, Step.RECOVERED)
NO_STEP = "-"


def write(two_phase: TwoPhase, *, fails: bool = False) -> None:
    """The next number, in both."""
    with two_phase.transaction() as transaction:
        cursor = transaction.connection.execute("INSERT INTO numbers DEFAULT VALUES RETURNING number")
        found = cursor.fetchone()
        assert found is not None
        number = found[0]
        transaction.send(TOPIC, b"%d" % number, partition=number % 2)
        transaction.send(TOPIC, b"-%d" % number, partition=(number + 1) % 2)
        if fails:
            raise RuntimeError("the application has changed its mind")


class KillAt:
    def __init__(self, step: Step | None, count: int) -> None:
        self._step = step
        self._left = 1 if step in FIRST_STEPS else count

    def __call__(self, step: Step) -> None:
        if step is self._step:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


class ForgetfulRow(TwoPhaseRow):
    """The negative control: it aborts whatever it finds."""

    def take(self, connection: Connection, cluster: str) -> PreparedTransaction | None:
        super().take(connection, cluster)
        return None


def opened(url: str, kafka: str, id: str, on_step: Callable[[Step], None]) -> TwoPhase:
    return TwoPhase(kafka, id, lambda: psycopg.connect(url), on_step=on_step)


def run_forked(url: str, kafka: str, id: str, line: str) -> int:
    step, count, how = line.split()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        at = None if step == NO_STEP else Step[step]
        with opened(url, kafka, id, KillAt(at, int(count))) as two_phase:
            if how == "badly":
                two_phase._row = ForgetfulRow(id)
            two_phase.recover()
            for _ in range(int(count)):
                write(two_phase)
        status = 0
    finally:  # the child must not run on as its parent
        if status:
            traceback.print_exc()
        os._exit(status)


def run_on(url: str, kafka: str, id: str) -> None:
    turn = 0
    with opened(url, kafka, id, lambda step: None) as two_phase:
        while True:
            turn += 1
            with suppress(RuntimeError):
                write(two_phase, fails=turn % 5 == 0)


if __name__ == "__main__":
    if sys.argv[4:] == ["--forks"]:
        for line in sys.stdin:
            print(run_forked(sys.argv[1], sys.argv[2], sys.argv[3], line), flush=True)
    else:
        run_on(sys.argv[1], sys.argv[2], sys.argv[3])
