"""The walk of one AMQP message: which source files run from its publish to its acknowledgement.

    python -m tools.walk [--calls]

Starts a broker with a data directory in this process. A client publishes with confirms, consumes and
acknowledges. After a warm-up, one message is traced: every function of Posthouse that is called for it, in
every thread of the broker, until the acknowledgement is stored. Timers that run with or without messages are
left out.

Prints the files of each layer in the order of their first call, with the number of functions called in each,
and counts the calls from one file to another. `--calls` prints those calls, too.
"""

import argparse
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pika

import posthouse
from posthouse.testing import running_broker

SOURCE = Path(posthouse.__file__).parent
LAYERS = {
    "front end": ("protocols",),
    "broker": ("broker",),
    "storage, and the formats below": ("storage", "records", "model"),
}
_TIMERS = frozenset(
    {"App._sweep", "FileStorage._look", "FileStorage._watch", "Housekeeping._run", "LoopDelay._ring"}
)
_QUEUE, _EXCHANGE, _KEY = "walked", "walks", "key"
_WARM_UP = 50
_LAST = "ProgressWriter._stored"
"""Called when the acknowledgement is durable, a moment after the client sent it: the end of the walk."""
_DEADLINE_S = 60.0


class Trace:
    """The functions that were called while it was recording, by file below `src/posthouse`."""

    def __init__(self) -> None:
        self.functions: dict[str, set[str]] = {}
        """In the order of the first call."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """From one file to a function of another."""
        self._is_recording = False
        self._ended = threading.Event()

    def begin(self) -> None:
        self.functions.clear()
        self.calls.clear()
        self._ended.clear()
        self._is_recording = True

    def end(self) -> None:
        """Wait until the walk has ended."""
        if not self._ended.wait(_DEADLINE_S):
            raise TimeoutError(f"the acknowledgement was not stored within {_DEADLINE_S:.0f} s")
        self._is_recording = False

    def called(self, frame: FrameType, event: str, argument: Any) -> None:
        """See `sys.setprofile`."""
        if not self._is_recording or event != "call":
            return
        file = _file_of(frame)
        if file is None or _is_of_a_timer(frame):
            return
        name = frame.f_code.co_qualname
        self.functions.setdefault(file, set()).add(name)
        caller = frame.f_back
        origin = None if caller is None else _file_of(caller)
        if origin != file:
            self.calls[origin or "event loop or thread", f"{file}: {name}"] += 1
        if name == _LAST:
            self._ended.set()

    def files(self, layer: str) -> list[str]:
        """Those of one of the `LAYERS`."""
        return [file for file in self.functions if file.partition("/")[0] in LAYERS[layer]]


def _file_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else None


def _is_of_a_timer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_qualname in _TIMERS:
            return True
        frame = frame.f_back
    return False


def traced_message() -> Trace:
    trace = Trace()
    threading.setprofile(trace.called)  # for the threads that start from now on: all of the broker's
    try:
        with tempfile.TemporaryDirectory() as data, running_broker(data=data) as broker:
            _walk(broker.amqp, trace)
    finally:
        threading.setprofile(None)
    return trace


def _walk(address: str, trace: Trace) -> None:
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{address}/")) as connection:
        channel = connection.channel()
        channel.exchange_declare(_EXCHANGE, "direct", durable=True)
        channel.queue_declare(_QUEUE, durable=True)
        channel.queue_bind(_QUEUE, _EXCHANGE, _KEY)
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=10)
        deliveries = channel.consume(_QUEUE)
        properties = pika.BasicProperties(content_type="text/plain", delivery_mode=2)
        for _ in range(_WARM_UP):
            channel.basic_publish(_EXCHANGE, _KEY, b"a message", properties)
            channel.basic_ack(next(deliveries)[0].delivery_tag)
        for _ in range(2):  # of the first one, nothing is left to be stored when the second begins
            trace.begin()
            channel.basic_publish(_EXCHANGE, _KEY, b"a message", properties)
            channel.basic_ack(next(deliveries)[0].delivery_tag)
            trace.end()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", action="store_true", help="print every call from one file to another")
    given = parser.parse_args()
    trace = traced_message()
    for layer in LAYERS:
        files = trace.files(layer)
        print(f"{layer}: {len(files)} files")
        for file in files:
            print(f"  {file:48} {len(trace.functions[file]):3} functions")
    if given.calls:
        print("calls from one file to another")
        for (origin, called), count in trace.calls.items():
            print(f"  {count:3}  {origin} -> {called}")
    print(
        f"{len(trace.functions)} files, {sum(trace.calls.values())} calls from one file to another, "
        f"{len(trace.calls)} of them different"
    )


if __name__ == "__main__":
    main()
