"""What is measured. A scenario runs on one started broker and records its figures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.processes import Served
from bench.rocketmq.figures import Row
from bench.rocketmq.loads import Loads, Measured
from bench.rocketmq.peers import anonymous_mib, peak_mib
from bench.rocketmq.plan import Plan

SMALL: Final = 128
"""Bytes of a message of a backlog, and of a delayed one."""
BATCH: Final = 100
MOST_MEMORY: Final = 300.0
GRPC_AIM: Final = 3.0
_THREADS: Final = 32
_FILLERS: Final = 4
_REMOTING: Final = "Java client, remoting"
_GRPC: Final = "Python client, gRPC"
_BACKLOG: Final = "Backlog"
_DELAY: Final = "Delayed messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One peer in one round."""

    plan: Plan
    served: Served
    loads: Loads
    record: Callable[[Row, float], None]
    """A figure of this peer; the row is that of the first figure of its name."""


def sending(run: Run) -> None:
    milliseconds = int(run.plan.seconds * 1000)
    run.loads.java("create", "sends")
    for threads, aim in ((1, None), (_THREADS, 1.0)):
        name = f"send, {threads} thread{'s' if threads > 1 else ''}"
        used = run.served.cpu_seconds()
        found = run.loads.java("send", "sends", run.plan.size, threads, milliseconds)
        used = run.served.cpu_seconds() - used
        row = Row(section=_REMOTING, name=name, unit="messages/s", least_ratio=aim)
        run.record(row, found["rate"])
        for share in (50, 99):
            row = Row(section=_REMOTING, name=f"{name}, latency, {share} %", unit="ms", is_less_better=True)
            run.record(row, found[f"p{share}_ms"])
        _record_cpu(run, _REMOTING, name, used, found)
    found = run.loads.java("transactions", "sends", run.plan.size, _THREADS, milliseconds)
    row = Row(section=_REMOTING, name=f"transactional send, {_THREADS} threads", unit="messages/s")
    run.record(row, found["rate"])


def consuming(run: Run) -> None:
    plan = run.plan
    run.loads.java("create", "consumed")
    batch = max(1, BATCH * SMALL // plan.size)
    found = run.loads.java("fill", "consumed", plan.size, batch, _FILLERS, plan.consumed)
    run.record(Row(section=_REMOTING, name=f"batches of {batch}", unit="messages/s"), found["rate"])
    # Batches may end before the last few messages.
    found = run.loads.java("consume", "consumed", plan.consumed // batch * batch)
    row = Row(section=_REMOTING, name="push consumer", unit="messages/s", least_ratio=1.0)
    run.record(row, found["rate"])


def grpc(run: Run) -> None:
    plan = run.plan
    run.loads.java("create", "grpc")
    used = run.served.cpu_seconds()
    found = run.loads.grpc("send", "grpc", plan.size, plan.seconds)
    row = Row(section=_GRPC, name="send", unit="messages/s", least_ratio=GRPC_AIM)
    run.record(row, found["rate"])
    _record_cpu(run, _GRPC, "send", run.served.cpu_seconds() - used, found)
    run.loads.java("fill", "grpc", plan.size, BATCH // 10, 1, int(plan.seconds * 2000))
    used = run.served.cpu_seconds()
    found = run.loads.grpc("receive", "grpc", plan.size, plan.seconds)
    used = run.served.cpu_seconds() - used
    name = "receive 32, acknowledge each"
    run.record(Row(section=_GRPC, name=name, unit="messages/s"), found["rate"])
    _record_cpu(run, _GRPC, name, used, found)


def backlog(run: Run) -> None:
    count = run.plan.backlog
    run.loads.java("create", "backlog")
    section = f"{_BACKLOG}: {count:,} messages of {SMALL} B"
    found = run.loads.java("fill", "backlog", SMALL, BATCH, _FILLERS, count)
    run.record(Row(section=section, name=f"filled with batches of {BATCH}", unit="messages/s"), found["rate"])
    _record_memory(run, section)
    found = run.loads.java("send", "backlog", SMALL, _THREADS, int(run.plan.seconds * 1000))
    name = f"send, {_THREADS} threads, behind it"
    run.record(Row(section=section, name=name, unit="messages/s"), found["rate"])


def delay(run: Run) -> None:
    """All are due at one moment, and consumed as they come."""
    plan = run.plan
    run.loads.java("create", "delayed")
    section = f"{_DELAY}: {plan.delayed:,} of {SMALL} B, all due at one moment"
    ahead = 5000 + plan.delayed * 1000 // plan.sent_at_least
    found = run.loads.java(
        "delay",
        "delayed",
        SMALL,
        _THREADS,
        plan.delayed,
        ahead,
        when_sent=lambda: _record_memory(run, section),
    )
    for name, unit, key in (
        (f"send, {_THREADS} threads", "messages/s", "rate"),
        ("from that moment until the last was consumed", "messages/s", "delivered"),
        ("came too early", "messages", "early"),
        ("never came", "messages", "missing"),
        ("sent after they were due, for", "ms", "late_sends"),
    ):
        row = Row(section=section, name=name, unit=unit, is_less_better=unit != "messages/s")
        run.record(row, found[key])


def _record_cpu(run: Run, section: str, name: str, seconds: float, found: Measured) -> None:
    row = Row(section=section, name=f"{name}, processor time of the broker", unit="µs", is_less_better=True)
    run.record(row, seconds / found["sent"] * 1e6)


def _record_memory(run: Run, section: str) -> None:
    pid = run.served.pid
    for name, mib, most in (
        ("memory, resident", run.served.rss_mib(), MOST_MEMORY),
        ("memory, resident, most until then", peak_mib(pid), None),
        ("memory without mapped files", anonymous_mib(pid), None),
    ):
        run.record(Row(section=section, name=name, unit="MiB", is_less_better=True, most=most), mib)


SCENARIOS: Final[dict[str, Callable[[Run], None]]] = {
    "sending": sending,
    "consuming": consuming,
    "grpc": grpc,
    "backlog": backlog,
    "delay": delay,
}
ONCE: Final = frozenset({"backlog", "delay"})
"""They take too long to be repeated."""
