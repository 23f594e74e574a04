"""`python -m bench.amqp_codec`: the AMQP codec and the record mapping, beside pamqp in the same run.

Trust the ratios: single figures move with the machine. The aims are what the fast paths in
`protocols/amqp/codec` are written out by hand for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pamqp import body, commands, frame, header
from rich.console import Console
from rich.table import Table

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.framing import PROTOCOL
from posthouse.protocols.amqp.mapping.caches import DeliveryCache, EnvelopeCache
from posthouse.protocols.amqp.mapping.envelopes import envelope_of

MESSAGES = 1000
ROUNDS = 15
FRAME_MAX = 131_072
CHANNEL = 1
EXCHANGE, KEY, CONSUMER = "amq.topic", "some.routing.key", "ctag1.0123456789abcdef"
BODY = bytes(128)
PROPERTIES = commands.Basic.Properties(content_type="text/plain", delivery_mode=2)
TASK = commands.Basic.Properties(
    content_type="application/json",
    content_encoding="utf-8",
    delivery_mode=2,
    priority=0,
    correlation_id="c8b1b8f1-1111-2222-3333-444444444444",
    reply_to="0a9c1ef2-5555-6666-7777-888888888888",
    headers={
        "lang": "py",
        "task": "tasks.add",
        "id": "c8b1b8f1-1111-2222-3333-444444444444",
        "eta": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": "c8b1b8f1-1111-2222-3333-444444444444",
        "argsrepr": "(1, 2)",
        "kwargsrepr": "{}",
        "origin": "gen123@host",
        "ignore_result": False,
    },
)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    ours: float
    """Microseconds for one, as the other figures."""
    aim: float | None = None
    pamqp: float | None = None


def microseconds(run: Callable[[], object], count: int = MESSAGES) -> float:
    """The best of several rounds: whatever else the machine did, it only added."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begun)
    return best / count * 1e6


def repeated(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(MESSAGES):
            call()

    return run


def unmarshal_all(data: bytes) -> Callable[[], None]:
    """For one message at a time: pamqp leaves it to its caller to cut the stream, which costs a copy."""

    def run() -> None:
        rest = data
        while rest:
            size, _, _ = frame.unmarshal(rest)
            rest = rest[size:]

    return run


def decoder() -> Decoder:
    fresh = Decoder(frame_max=FRAME_MAX)
    fresh.feed(PROTOCOL)
    return fresh


def decoding() -> list[Row]:
    publish = b"".join(
        (
            frame.marshal(commands.Basic.Publish(exchange=EXCHANGE, routing_key=KEY), CHANNEL),
            frame.marshal(header.ContentHeader(body_size=len(BODY), properties=PROPERTIES), CHANNEL),
            frame.marshal(body.ContentBody(BODY), CHANNEL),
        )
    )
    chunk = publish * MESSAGES
    pieces = [chunk[at : at + 65_536] for at in range(0, len(chunk), 65_536)]
    acks = b"".join(encode.ack(CHANNEL, tag, False) for tag in range(MESSAGES))
    nack = frame.marshal(commands.Basic.Nack(7, False, True), CHANNEL)
    feed = decoder().feed
    by_pamqp = microseconds(repeated(unmarshal_all(publish)))
    return [
        Row("decode publish, 128 B", microseconds(lambda: feed(chunk)), 2.5, by_pamqp),
        Row("… in chunks of 64 KiB", microseconds(lambda: [feed(piece) for piece in pieces]), 2.5, by_pamqp),
        Row("… one in a chunk", microseconds(repeated(lambda: feed(publish))), None, by_pamqp),
        Row(
            "decode ack",
            microseconds(lambda: feed(acks)),
            0.7,
            microseconds(repeated(unmarshal_all(acks[:21]))),
        ),
        Row(
            "decode nack (any other method)",
            microseconds(lambda: feed(nack * MESSAGES)),
            None,
            microseconds(repeated(unmarshal_all(nack))),
        ),
    ]


def encoding() -> list[Row]:
    consumer, exchange, key, properties = (
        CONSUMER.encode(),
        EXCHANGE.encode(),
        KEY.encode(),
        PROPERTIES.marshal(),
    )

    def deliver() -> bytes:
        return encode.deliver(CHANNEL, consumer, 7, False, exchange, key, properties, BODY, FRAME_MAX)

    def deliver_by_pamqp() -> bytes:
        return b"".join(
            (
                frame.marshal(commands.Basic.Deliver(CONSUMER, 7, False, EXCHANGE, KEY), CHANNEL),
                frame.marshal(header.ContentHeader(body_size=len(BODY), properties=PROPERTIES), CHANNEL),
                frame.marshal(body.ContentBody(BODY), CHANNEL),
            )
        )

    assert deliver() == deliver_by_pamqp()
    return [
        Row(
            "encode deliver, 128 B",
            microseconds(repeated(deliver)),
            3.0,
            microseconds(repeated(deliver_by_pamqp)),
        ),
        Row(
            "encode ack",
            microseconds(repeated(lambda: encode.ack(CHANNEL, 7, False))),
            0.7,
            microseconds(repeated(lambda: frame.marshal(commands.Basic.Ack(7, False), CHANNEL))),
        ),
    ]


def mapping(name: str, values: commands.Basic.Properties) -> list[Row]:
    properties = values.marshal()
    section = envelope_of(b"celery", properties).headers
    seen, known = EnvelopeCache(), DeliveryCache(lambda _: b"")
    return [
        Row(f"envelope of {name}, seen before", _each(lambda: seen[b"celery", properties])),
        Row(f"envelope of {name}, new", _each(lambda: envelope_of(b"celery", properties))),
        Row(f"delivery of {name}, seen before", _each(lambda: known.of(section, "celery", 0))),
        Row(f"delivery of {name}, new", _each(lambda: DeliveryCache(lambda _: b"").of(section, "celery", 0))),
    ]


def _each(call: Callable[[], object]) -> float:
    return microseconds(repeated(call))


def main() -> None:
    rows = (
        *decoding(),
        *encoding(),
        *mapping("two properties", PROPERTIES),
        *mapping("a Celery task", TASK),
    )
    table = Table("", "µs", "aim", "pamqp", "× as fast")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.ours:.2f}",
            f"{row.aim:.1f}" if row.aim is not None else "",
            f"{row.pamqp:.2f}" if row.pamqp is not None else "",
            f"{row.pamqp / row.ours:.1f}" if row.pamqp is not None else "",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
