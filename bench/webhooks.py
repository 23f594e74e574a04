"""`python -m bench webhooks`: deliveries a second, CPU for each, and what endpoints that hang cost others.

The broker, on a fresh directory, and the receiver are processes of their own. Messages are there before they
are pushed, and only pushing is measured.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.processes import Served
from bench.scenarios import Row
from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from tests.served import ServedBroker

SECTION: Final = "Webhooks: messages of 1 KiB, pushed to a receiver on the same machine"
BODY: Final = b'{"order": "' + b"x" * 1010 + b'"}'
WORKING: Final = 40
HANGING: Final = 10
_PATIENCE: Final = 600.0
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    address: str

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"http://{self.address}/counts") as answer:
            return dict(json.load(answer)["counts"])

    def last(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self.address}/counts") as answer:
            return dict(json.load(answer)["last"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    messages: int
    seconds: float
    cpu_seconds: float


def webhooks(scale: float) -> Iterator[Row]:
    """Rows for a page of figures."""
    messages = max(int(20_000 * scale), 200)
    for name, count, options in (
        ("one endpoint, 8 requests at a time", messages, {}),
        ("one endpoint, 64 requests at a time", messages, {"concurrency": 64}),
        ("one endpoint, by key, 8 requests at a time", messages // 4, {"ordered": True}),
        ("one endpoint, batches of 100 events", messages * 4, {"batch": 100, "form": "cloudevents"}),
    ):
        with _pushing() as (served, admin, kafka, receiver):
            _fill(kafka, "orders", count)
            pushed = _measured(served, admin, receiver, [("orders", "/one", options)], count)
        yield Row(section=SECTION, name=name, value=pushed.messages / pushed.seconds, unit="messages/s")
        cpu = pushed.cpu_seconds / pushed.messages * 1e6
        yield Row(section=SECTION, name=f"broker CPU, {name}", value=cpu, unit="µs a message")
    yield from many(scale)


def many(scale: float) -> Iterator[Row]:
    """40 endpoints that work, alone and beside 10 that accept connections and never answer."""
    each = max(int(500 * scale), 20)
    rates: dict[str, list[float]] = {"alone": [], "beside": []}
    cpu: dict[str, list[float]] = {"alone": [], "beside": []}
    for _ in range(_ROUNDS):  # in turn: what else the machine does is the same for both
        for kind, hanging in (("alone", 0), ("beside", HANGING)):
            pushed = _many(each, hanging=hanging)
            rates[kind].append(pushed.messages / pushed.seconds)
            cpu[kind].append(pushed.cpu_seconds / pushed.messages * 1e6)
    names = {
        "alone": f"{WORKING} endpoints",
        "beside": f"{WORKING} endpoints, beside {HANGING} that hang",
    }
    for kind, name in names.items():
        rate, alone = statistics.median(rates[kind]), statistics.median(rates["alone"])
        yield Row(
            section=SECTION,
            name=name,
            value=rate,
            unit="messages/s",
            ratio=rate / alone if kind == "beside" else None,
            ratio_to="without them",
            aim="≥ 0.80" if kind == "beside" else "",
        )
        spent = statistics.median(cpu[kind])
        yield Row(section=SECTION, name=f"broker CPU, {name}", value=spent, unit="µs a message")


def _many(each: int, *, hanging: int) -> Pushed:
    with _pushing() as (served, admin, kafka, receiver):
        _fill(kafka, "orders", each)
        for number in range(hanging):
            name = f"dead-{number}"
            _create(admin, receiver, name, "orders", f"/hang/{number}", {"timeout_seconds": 5})
            admin.post(f"/v1/webhooks/{name}/replay", {"since": "earliest"})
        wanted: list[tuple[str, str, dict[str, Any]]] = [
            ("orders", f"/works/{number}", {}) for number in range(WORKING)
        ]
        return _measured(served, admin, receiver, wanted, each)


def _measured(
    served: Served,
    admin: AdminClient,
    receiver: Receiver,
    wanted: Sequence[tuple[str, str, dict[str, Any]]],
    each: int,
) -> Pushed:
    """They begin at the end of the topic, and push nothing before they are replayed."""
    names = [f"hook-{number}" for number in range(len(wanted))]
    for name, (topic, path, options) in zip(names, wanted, strict=True):
        _create(admin, receiver, name, topic, path, options)
    cpu, began = served.cpu_seconds(), time.time()
    for name in names:
        admin.post(f"/v1/webhooks/{name}/replay", {"since": "earliest"})
    deadline = time.monotonic() + _PATIENCE
    while any(admin.get(f"/v1/webhooks/{name}")["lag"] for name in names):
        if time.monotonic() > deadline:
            raise TimeoutError("the messages were not pushed")
        time.sleep(0.2)
    spent = served.cpu_seconds() - cpu
    last, counts = receiver.last(), receiver.counts()
    for _, path, options in wanted:
        if counts[path] * options.get("batch", 1) < each:
            raise AssertionError(f"{path} got {counts[path]} requests for {each} messages")
    ended = max(last[path] for _, path, _ in wanted)
    return Pushed(messages=each * len(wanted), seconds=ended - began, cpu_seconds=spent)


def _create(
    admin: AdminClient, receiver: Receiver, name: str, topic: str, path: str, options: dict[str, Any]
) -> None:
    url = f"http://{receiver.address}{path}"
    admin.post("/v1/webhooks", {"name": name, "topic": topic, "url": url, **options})


def _fill(kafka: Client, topic: str, count: int) -> None:
    kafka.create_topic(topic, partitions=4)
    with kafka.producer(topic) as producer:
        for number in range(count):
            producer.send(BODY, key=b"%d" % (number % 1000))


@contextmanager
def _pushing() -> Iterator[tuple[Served, AdminClient, Client, Receiver]]:
    directory = Path(".bench")
    directory.mkdir(exist_ok=True)  # not /tmp, which may be memory
    with (
        tempfile.TemporaryDirectory(prefix="posthouse-bench-", dir=directory) as scratch,
        _receiver() as there,
    ):
        broker = ServedBroker(Path(scratch) / "data", webhook_allow="127.0.0.0/8")
        try:
            with AdminClient(broker.admin) as admin, Client(broker.bootstrap) as kafka:
                yield Served(broker.process.pid, broker.admin, 0.0), admin, kafka, there
        finally:
            broker.stop()


@contextmanager
def _receiver() -> Iterator[Receiver]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.webhook_receiver"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Receiver(address=f"127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.terminate()
        process.wait()
