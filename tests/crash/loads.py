"""Clients in threads, the history of what they did and were told, and the kill of the broker under them."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tests.checker.history import Fault, History, Operation, Outcome
from tests.crash.served import BrokerProcess

_PATIENCE = 60.0


class Recorder:
    """One history over all lives of a broker, that all threads add to."""

    def __init__(self) -> None:
        self.history = History()
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._kept: Counter[type[Operation]] = Counter()

    def now(self) -> int:
        return time.monotonic_ns()

    def number(self) -> int:
        """A value or a process that was not there before."""
        return next(self._numbers)

    def add(self, *operations: Operation) -> None:
        with self._changed:
            self.history += operations
            self._kept.update(type(each) for each in operations if _is_kept(each))
            self._changed.notify_all()

    def wait_for_more(self, wanted: Mapping[type[Operation], int]) -> None:
        """Until so many more operations of each class have succeeded."""
        with self._changed:
            goals = {kind: self._kept[kind] + count for kind, count in wanted.items()}
            assert self._changed.wait_for(
                lambda: all(self._kept[kind] >= goal for kind, goal in goals.items()), _PATIENCE
            ), "the load makes no progress"


def _is_kept(operation: Operation) -> bool:
    return getattr(operation, "outcome", Outcome.OK) is Outcome.OK


class Load:
    """Clients of one life of a broker."""

    def __init__(self, recorder: Recorder, lost: tuple[type[Exception], ...] = ()) -> None:
        """`lost` is what clients raise when their broker dies."""
        self.recorder = recorder
        self.over = threading.Event()
        """The broker is dead; for clients that do not take notice of that by themselves."""
        self._lost = lost
        self._is_to_die = threading.Event()
        self._failures: list[Exception] = []
        self._threads: list[threading.Thread] = []

    def start(self, clients: Sequence[Callable[[], None]]) -> None:
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in clients]
        for thread in self._threads:
            thread.start()

    def _run(self, client: Callable[[], None]) -> None:
        try:
            client()
        except self._lost as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test fails with it
            self._failures.append(error)

    def fail(self, error: Exception) -> None:
        """A client was refused something, which is fine when the broker is about to die."""
        if not self._is_to_die.is_set():
            self._failures.append(error)

    def end_with(self, process: BrokerProcess) -> None:
        """Kill the broker under its clients, which have to find out, and end."""
        self._is_to_die.set()
        self.recorder.add(Fault(self.recorder.now(), "kill"))
        process.kill()
        self.over.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a client hangs after the broker died"
        assert self._failures == []
