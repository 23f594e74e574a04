"""Load in processes of its own, one per connection: no end of it waits for the other's Python."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Generic, ParamSpec, TypeVar

from bench.queues.connection import Refused
from bench.queues.scanning import OutOfStep

# Not forked: the display of the parent has threads.
_PROCESSES = multiprocessing.get_context("spawn")
_POLL = 0.1
P = ParamSpec("P")
T = TypeVar("T")


class LoadFailed(Exception):
    """A worker could not do what it should; the text says why."""


class Tally:
    """A number that several processes see. One of them writes it."""

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared = _PROCESSES.RawValue("Q", 0)

    @property
    def value(self) -> int:
        return int(self._shared.value)

    @value.setter
    def value(self, value: int) -> None:
        self._shared.value = value


@dataclass(frozen=True, slots=True)
class Load:
    """So many messages took so long."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds


class Worker(Generic[T]):
    """A function that runs in another process; both it and what it is given have to be importable there."""

    def __init__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        self._pipe, theirs = _PROCESSES.Pipe(duplex=False)
        self._process = _PROCESSES.Process(target=_run, args=(theirs, function, args, kwargs), daemon=True)
        self._process.start()
        theirs.close()

    def result(self, watch: Callable[[], object] = lambda: None) -> T:
        """What the function returned; `watch` is called every now and then meanwhile."""
        try:
            while not self._pipe.poll(_POLL):
                watch()
            is_good, value = self._pipe.recv()
        except EOFError:
            is_good, value = False, "the load generator broke down; its words are above"
        finally:
            self.end()
        watch()
        if not is_good:
            raise LoadFailed(str(value))
        result: T = value
        return result

    def wait_for(self, tally: Tally) -> None:
        """Until the function has set it."""
        while not tally.value:
            if self.has_ended():
                self.result()
            time.sleep(0.01)

    def has_ended(self) -> bool:
        return self._pipe.poll()

    def end(self) -> None:
        self._process.join(2)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._pipe.close()


def wait_for_all(workers: Sequence[Worker[T]], tallies: Sequence[Tally]) -> None:
    """Until each worker has set its tally. If one of them fails, all are ended."""
    try:
        for worker, tally in zip(workers, tallies, strict=True):
            worker.wait_for(tally)
    except BaseException:
        for worker in workers:
            worker.end()
        raise


def _run(pipe: Pipe, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    try:
        result = function(*args, **kwargs)
    except (OSError, OutOfStep, Refused) as error:
        pipe.send((False, f"{type(error).__name__}: {error}"))
    else:
        pipe.send((True, result))


def now() -> float:
    """Seconds on a clock that all processes of the machine share."""
    return time.monotonic()
