"""`python -m bench.rocketmq_codec`: the cost of the RocketMQ codec for a message of 1 KiB."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from rich.console import Console
from rich.table import Table

from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder, encode_command
from posthouse.protocols.rocketmq.codec.hosts import Host, pack_host
from posthouse.protocols.rocketmq.codec.message_ids import make_message_id
from posthouse.protocols.rocketmq.codec.properties import decode_properties, encode_properties
from posthouse.protocols.rocketmq.codec.stored_messages import (
    StoredMessage,
    decode_stored_messages,
    encode_stored_message,
)

CALLS: Final = 2000
ROUNDS: Final = 15
BODY: Final = bytes(1024)
HOST: Final = pack_host(Host(address="127.0.0.1", port=10911))
PROPERTIES: Final = (
    "KEYS\x01order-4711\x02UNIQ_KEY\x017F0000010A2B18B4AAC2123456780001\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)
SEND: Final = Command(
    310,
    7,
    fields={
        "a": "producers",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": PROPERTIES,
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
        "n": "broker-a",
    },
    body=BODY,
)
MESSAGE: Final = StoredMessage(
    topic="orders",
    queue=3,
    queue_offset=1234,
    position=99_999,
    body=BODY,
    properties=PROPERTIES,
    born_at=1_700_000_000_000,
    born_host=HOST,
    stored_at=1_700_000_000_000,
    stored_host=HOST,
)


def microseconds(call: Callable[[], object]) -> float:
    """The best of several rounds: whatever else the machine did, it only added."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - begun)
    return best / CALLS * 1e6


def main() -> None:
    table = Table("", "µs", "aim")
    for serialization in Serialization:
        send = replace(SEND, serialization=serialization)
        fields = {"msgId": make_message_id(HOST, 1000), "queueId": "3", "queueOffset": "1234"}
        answer = send.answer(0, fields={**fields, "transactionId": "", "MSG_REGION": "DefaultRegion"})
        data = encode_command(send)
        decoding = microseconds(partial(FrameDecoder().feed, data))
        encoding = microseconds(partial(encode_command, answer))
        name = serialization.name
        table.add_row(f"decode a send, {name}", f"{decoding:.2f}")
        table.add_row(f"encode its answer, {name}", f"{encoding:.2f}")
        table.add_row(f"… both, {name}", f"{decoding + encoding:.2f}", "15")
    stored, properties = encode_stored_message(MESSAGE), decode_properties(PROPERTIES)
    for name, call in (
        ("encode a stored message", lambda: encode_stored_message(MESSAGE)),
        ("decode a stored message", lambda: decode_stored_messages(stored)),
        ("decode four properties", lambda: decode_properties(PROPERTIES)),
        ("encode four properties", lambda: encode_properties(properties)),
    ):
        table.add_row(name, f"{microseconds(call):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
