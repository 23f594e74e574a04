"""One message to many queues: a fanout exchange, and one consumer that empties all its queues."""

from collections.abc import Iterator
from functools import partial

from bench.queues import loads
from bench.queues.connection import Connection
from bench.queues.contests import Contender, Figures, Stage
from bench.queues.figures import Row
from bench.queues.peers import Peer

SIZE = 128
_EXCHANGE = "bench"
_SHARES = {1: 0.2, 10: 0.05, 100: 0.01}
"""Of the plan's messages, by the number of queues: more copies, fewer messages."""


def fan_out(stage: Stage) -> Iterator[Row]:
    for queues, share in _SHARES.items():
        messages = max(int(stage.plan.messages * share), 1)
        contenders = [
            Contender(peer.name, partial(_measured, stage, peer, queues, messages))
            for peer in stage.plan.peers
        ]
        outcome = stage.contest(f"to {queues} queues", contenders)
        for verb in ("publish", "deliver"):
            done = f"publish {messages:,} messages to" if verb == "publish" else "deliver all of"
            yield Row(
                section=f"Fan-out: {SIZE} B, durable, confirmed",
                name=f"{done} {queues} queue{'s' if queues > 1 else ''}",
                unit="messages/s",
                rounds=outcome.of(verb),
                missing=outcome.missing,
                is_ahead_the_aim=True,
            )


def _measured(stage: Stage, peer: Peer, queues: int, messages: int) -> Figures:
    names = [f"bench-{number:03}" for number in range(queues)]
    with peer.start() as served:
        with Connection(served.port) as connection:
            connection.declare_fanout(_EXCHANGE)
            for name in names:
                connection.declare_queue(name)
                connection.bind(name, _EXCHANGE)
        published = stage.drive("publish", served.port, loads.publish, _EXCHANGE, "", SIZE, count=messages)
        delivered = stage.drive("deliver", served.port, loads.consume, names, count=messages * queues)
    return {"publish": published.rate, "deliver": delivered.rate}
