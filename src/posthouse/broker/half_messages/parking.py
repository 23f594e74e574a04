"""Where half messages go that nobody has decided: a topic, with what they were for in headers."""

from typing import Final

from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.routed_records import RoutedRecords
from posthouse.records.header_section import decode_section, encode_section

PARKED_TOPIC: Final = "posthouse.undecided"


def park(message: HalfMessage, records: RoutedRecords, wave: Wave) -> None:
    """Raises what `RoutedRecords.add` does."""
    content = message.content
    headers = encode_section([*_told(message), *decode_section(content.headers)])
    key = content.key if content.has_key else None
    records.add(PARKED_TOPIC, 0, key, content.value, headers, wave)


def _told(message: HalfMessage) -> list[tuple[bytes, bytes | None]]:
    content = message.content
    told: dict[bytes, str]
    if content.partition is not None:
        told = {b"topic": content.exchange, b"partition": str(content.partition)}
    else:
        told = {b"namespace": content.namespace, b"exchange": content.exchange}
    told[b"group"] = message.group
    if message.name:
        told[b"name"] = message.name
    return [(b"posthouse.half-" + name, value.encode(errors="replace")) for name, value in told.items()]
