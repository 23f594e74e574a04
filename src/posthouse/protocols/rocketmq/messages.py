"""Messages as records, and records of any protocol as messages.

    body          value of the record; compressed ones are stored as they were before that
    KEYS          key of the record
    properties    headers of the same names
    the rest      the header `rocketmq.message`: flag i32, reconsume times i32, born at i64, born host

What only says how to send (WAIT, delays) is not stored; of a delayed message, TIMER_DELIVER_MS is when it was
to be delivered. A record without that header comes from another protocol: its headers are the properties as
far as RocketMQ can have them, its key is the property KEYS.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from posthouse.broker.half_messages.proofs import PROOF
from posthouse.broker.schedule.entry import LATEST_MS
from posthouse.broker.subscriptions.dead_letters import HEADERS as DEAD_LETTER_HEADERS
from posthouse.protocols.rocketmq.codec.codes import KEYS, REGION, TAGS, TIMER_DELIVER_MS, WAIT
from posthouse.protocols.rocketmq.codec.hosts import V4_SIZE, V6_SIZE
from posthouse.protocols.rocketmq.codec.properties import encode_properties
from posthouse.protocols.rocketmq.delays import PROPERTIES as DELAYS
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import RawRecord

HEADER: Final = b"rocketmq.message"
UNKNOWN_HOST: Final = bytes(V4_SIZE)
LONGEST_PROPERTIES: Final = 32_000
"""Bytes that a producer may send."""
_REGION: Final = encode_properties({REGION: "DefaultRegion"})
"""Upstream's, of brokers that are told none."""
LONGEST_STORED: Final = 0x7FFF - len(_REGION)
"""Bytes that fit in an answer: the broker itself has added some to a message that is tried again."""
_NO_LARGE_PORT: Final = b"\0\0"
_NOT_STORED: Final = frozenset({WAIT, *DELAYS})
_OF_PROTOCOLS: Final = (b"amqp.", b"posthouse.", b"rocketmq.")
_SHOWN: Final = frozenset(DEAD_LETTER_HEADERS)
"""All the same: where a dead letter comes from."""
_FIXED: Final = Struct(">iiq")
_LONGEST_DUE: Final = len(str(LATEST_MS))


@dataclass(slots=True, kw_only=True)
class Message:
    """What is in a record. Not frozen: there is one for each message."""

    body: bytes
    properties: dict[str, str]
    born_at: int
    born_host: bytes = UNKNOWN_HOST
    """As `pack_host` returns it."""
    flag: int = 0
    reconsume_times: int = 0
    due_ms: int | None = None
    """When it is to be delivered, or was; None if it was not delayed."""

    @property
    def tag(self) -> str | None:
        return self.properties.get(TAGS)


def consumer_properties(properties: Mapping[str, str]) -> str:
    """Encoded, with what only consumers get. Raises BadProperties."""
    encoded = encode_properties(properties)
    return encoded if REGION in properties else encoded + _REGION


def record_key(properties: Mapping[str, str]) -> bytes | None:
    keys = properties.get(KEYS)
    return keys.encode() if keys else None


def record_headers(message: Message) -> bytes:
    """Encoded as in a batch."""
    headers: list[tuple[bytes, bytes | None]] = [
        (name.encode(), value.encode())
        for name, value in message.properties.items()
        if name not in _NOT_STORED
    ]
    if message.due_ms is not None:
        headers.append((TIMER_DELIVER_MS.encode(), b"%d" % message.due_ms))
    fixed = _FIXED.pack(message.flag, message.reconsume_times, message.born_at)
    headers.append((HEADER, fixed + message.born_host))
    return encode_section(headers)


def message_of(record: RawRecord) -> Message:
    """Raises CorruptBatch for headers that cannot be read."""
    properties: dict[str, str] | None = None
    flag, reconsume_times, born_at, born_host = 0, 0, record.timestamp, UNKNOWN_HOST
    headers = decode_section(record.headers)
    if headers and headers[0][0] == PROOF:
        del headers[0]
    if headers and headers[-1][0] == HEADER:
        fixed = headers.pop()[1] or b""
        try:
            flag, reconsume_times, born_at = _FIXED.unpack_from(fixed)
        except StructError:
            pass  # another producer has made this header: the record is shown without what it says
        else:
            properties = _own(headers)
            if _is_host(fixed[_FIXED.size :]):
                born_host = fixed[_FIXED.size :]
    if properties is None:
        properties = _foreign(headers, record.key)
    return Message(
        body=record.value,
        properties=properties,
        born_at=born_at,
        born_host=born_host,
        flag=flag,
        reconsume_times=reconsume_times,
        due_ms=_due_ms(properties),
    )


def _due_ms(properties: Mapping[str, str]) -> int | None:
    """None also where another producer has made the header."""
    text = properties.get(TIMER_DELIVER_MS)
    if text is None or not text.isdecimal() or len(text) > _LONGEST_DUE:
        return None
    return int(text)


def _own(headers: list[tuple[bytes, bytes | None]]) -> dict[str, str] | None:
    """None if a producer of another protocol must have made them: a message with such properties could not be
    sent to any client, and would stop its queue."""
    texts = [text or b"" for header in headers for text in header]
    joined = b"".join(texts)
    size = len(joined) + len(texts)
    if size > LONGEST_STORED or _has_separator(joined) or not all(texts[::2]):
        return None
    try:
        return {name.decode(): (value or b"").decode() for name, value in headers}
    except UnicodeDecodeError:
        return None


def _is_host(packed: bytes) -> bool:
    return len(packed) in (V4_SIZE, V6_SIZE) and packed[-4:-2] == _NO_LARGE_PORT


def _foreign(headers: list[tuple[bytes, bytes | None]], key: bytes | None) -> dict[str, str]:
    """Headers that are no text, or do not fit, are left out: they stay in the log for other protocols."""
    properties: dict[str, str] = {}
    if key:
        headers = [(KEYS.encode(), key), *headers]
    room = LONGEST_PROPERTIES
    for name, value in headers:
        if not name or value is None or (name.startswith(_OF_PROTOCOLS) and name not in _SHOWN):
            continue
        size = len(name) + len(value) + 2
        if size > room or _has_separator(name) or _has_separator(value):
            continue
        try:
            text_name, text = name.decode(), value.decode()
        except UnicodeDecodeError:
            continue
        properties[text_name] = text
        room -= size
    return properties


def _has_separator(text: bytes) -> bool:
    return b"\x01" in text or b"\x02" in text
