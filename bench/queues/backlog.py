"""The same work at an empty queue and at a long one.

Two brokers of the same kind, one with an empty queue and one with the backlog, take turns; the other one is
idle meanwhile. Filling takes so long that different peers cannot take turns here.
"""

from collections.abc import Iterator

from bench.processes import Served
from bench.queues import loads, pairs
from bench.queues.connection import Connection
from bench.queues.contests import FAILURES, Stage
from bench.queues.enqueueing import QUEUE
from bench.queues.figures import Row
from bench.queues.peers import RABBITMQ, Peer

SIZE = 128
MOST_MEMORY = 512
LEAST_SHARE = 0.95
_EMPTY, _LONG, _SHARE = "messages/s, empty", "messages/s, backlog", "share"
_MEMORY_EMPTY, _MEMORY_LONG, _FILLED = "MiB, empty", "MiB, backlog", "MiB, filled"
_FIGURES = (_EMPTY, _LONG, _SHARE, _MEMORY_EMPTY, _FILLED, _MEMORY_LONG)
Columns = dict[str, dict[str, tuple[float, ...]]]
"""By figure, then by peer, round by round."""


def backlog(stage: Stage) -> Iterator[Row]:
    columns: Columns = {figure: {} for figure in _FIGURES}
    missing: dict[str, str] = {}
    for peer in stage.plan.backlog_peers:
        try:
            if peer.name in stage.absent:
                missing[peer.name] = stage.absent[peer.name]
                continue
            for figure, values in _measured(stage, peer).items():
                columns[figure][peer.name] = tuple(values)
        except FAILURES as error:
            missing[peer.name] = str(error)
            stage.display.say(f"  {peer.name}, backlog: not measured: {error}")
    yield from _rows(_section(stage), columns, missing)


def _measured(stage: Stage, peer: Peer) -> dict[str, list[float]]:
    count = _backlog_of(stage, peer)
    figures: dict[str, list[float]] = {figure: [] for figure in _FIGURES}
    with peer.start() as empty, peer.start() as long:
        for served in (empty, long):
            with Connection(served.port) as connection:
                connection.declare_queue(QUEUE)
        stage.display.stage = f"{peer.name}, backlog"
        stage.drive("filling", long.port, loads.publish, "", QUEUE, SIZE, count=count)
        figures[_FILLED].append(long.rss_mib())
        for number in range(stage.plan.rounds):
            stage.display.stage = f"round {number + 1} of {stage.plan.rounds}: {peer.name}, backlog"
            with Connection(empty.port) as connection:
                connection.purge(QUEUE)
            for served, rate, memory in ((empty, _EMPTY, _MEMORY_EMPTY), (long, _LONG, _MEMORY_LONG)):
                reached, most = _steady(stage, served)
                figures[rate].append(reached)
                figures[memory].append(most)
            figures[_SHARE].append(figures[_LONG][-1] / figures[_EMPTY][-1])
    return figures


def _steady(stage: Stage, served: Served) -> tuple[float, float]:
    """Messages per second in and out, and the most memory that the broker had meanwhile."""
    sizes = [served.rss_mib()]
    plan = stage.plan
    with stage.display.waiting("publishing and consuming"):
        load = pairs.run(
            served.port, QUEUE, SIZE, plan.warm_up, plan.seconds, lambda: sizes.append(served.rss_mib())
        )
    return load.rate, max(sizes)


def _backlog_of(stage: Stage, peer: Peer) -> int:
    return stage.plan.rabbitmq_backlog if peer.name == RABBITMQ else stage.plan.backlog


def _section(stage: Stage) -> str:
    counts = {peer.name: _backlog_of(stage, peer) for peer in stage.plan.backlog_peers}
    if len(set(counts.values())) == 1:
        told = f"{next(iter(counts.values())):,}"
    else:
        told = ", ".join(f"{count:,} ({name})" for name, count in counts.items())
    return f"Empty and with a backlog: {told} messages of {SIZE} B"


def _rows(section: str, columns: Columns, missing: dict[str, str]) -> Iterator[Row]:
    for figure, name in ((_EMPTY, "in and out at once, empty queue"), (_LONG, "in and out at once, backlog")):
        yield Row(
            section=section,
            name=name,
            unit="messages/s",
            rounds=columns[figure],
            missing=missing,
            is_ahead_the_aim=True,
        )
    yield Row(
        section=section,
        name="throughput that is left at the backlog",
        unit="× empty",
        rounds=columns[_SHARE],
        missing=missing,
        least=LEAST_SHARE,
    )
    for figure, name in (
        (_MEMORY_EMPTY, "memory, empty queue"),
        (_FILLED, "memory after filling"),
        (_MEMORY_LONG, "memory, in and out at the backlog"),
    ):
        yield Row(
            section=section,
            name=name,
            unit="MiB",
            rounds=columns[figure],
            missing=missing,
            is_less_better=True,
            most=None if figure == _MEMORY_EMPTY else MOST_MEMORY,
        )
