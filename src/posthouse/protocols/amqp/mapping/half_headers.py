"""The headers of half messages: what a publish wants, and how a check looks.

    x-half-message          prepare, commit or rollback; check in what the broker asks
    x-producer-group        the group of producers, any of which may decide
    x-check-queue           whose consumers are asked, by default posthouse.checks.GROUP
    x-check-after-seconds   when they are asked for the first time

The name of the message is its message-id. None of these headers is left on a message that is committed: one
that is forwarded with its headers must not be prepared again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from posthouse.broker.half_messages.checks import FIRST_CHECK_SECONDS, LONGEST_FIRST_CHECK
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.model.errors import CorruptBatch
from posthouse.protocols.amqp.mapping.changes import REMOVE, set_headers, without_expiration
from posthouse.protocols.amqp.mapping.errors import InvalidProperty
from posthouse.protocols.amqp.mapping.json_properties import properties_from_json
from posthouse.protocols.amqp.mapping.properties import parse
from posthouse.protocols.amqp.mapping.readable import PROPERTIES
from posthouse.records.header_section import decode_section

HALF: Final = "x-half-message"
GROUP: Final = "x-producer-group"
CHECK_QUEUE: Final = "x-check-queue"
CHECK_AFTER: Final = "x-check-after-seconds"
LONGEST_GROUP: Final = 200
"""Bytes: the name of the usual queue for checks has to fit into 255."""
_LONGEST_NAME: Final = 255
_CHECK: Final = "check"
_NO_HEADERS: Final = dict.fromkeys((HALF, GROUP, CHECK_QUEUE, CHECK_AFTER), REMOVE)


class HalfStep(Enum):
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfWish:
    """What a publish wants."""

    step: HalfStep
    group: str
    name: str
    check_queue: str
    """Empty for the usual one."""
    first_check_seconds: int


def check_queue_of(group: str, named: str) -> str:
    return named or f"posthouse.checks.{group}"


def half_wish(headers: Mapping[str, object], properties: bytes) -> HalfWish:
    """`headers` are among the properties. Raises InvalidProperty and MalformedProperties."""
    try:
        step = HalfStep(headers[HALF])
    except ValueError:
        raise InvalidProperty(f"{HALF} is prepare, commit or rollback, not {headers[HALF]!r}") from None
    return HalfWish(
        step=step,
        group=_text(headers, GROUP, LONGEST_GROUP),
        name=_message_id(properties),
        check_queue=_text(headers, CHECK_QUEUE, _LONGEST_NAME) if CHECK_QUEUE in headers else "",
        first_check_seconds=_seconds(headers),
    )


def _text(headers: Mapping[str, object], name: str, longest: int) -> str:
    value = headers.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode(errors="replace")) <= longest:
        raise InvalidProperty(f"a half message needs the header {name}, a text of 1 to {longest} bytes")
    return value


def _message_id(properties: bytes) -> str:
    try:
        name = (parse(properties).message_id or b"").decode()
    except UnicodeDecodeError:
        raise InvalidProperty("the message-id of a half message is no UTF-8") from None
    if not name:
        raise InvalidProperty("a half message needs a message-id")
    return name


def _seconds(headers: Mapping[str, object]) -> int:
    value = headers.get(CHECK_AFTER, FIRST_CHECK_SECONDS)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LONGEST_FIRST_CHECK:
        raise InvalidProperty(f"{CHECK_AFTER} is a number from 0 to {LONGEST_FIRST_CHECK}, not {value!r}")
    return value


def without_half_headers(properties: bytes) -> bytes:
    return set_headers(properties, _NO_HEADERS)


def check_properties(message: HalfMessage) -> bytes:
    """Those of the message that is asked about, with what says that it is a check."""
    properties = _published(message)
    if parse(properties).message_id is None:
        properties = properties_from_json({"message_id": message.name})
    return set_headers(without_expiration(properties), {HALF: _CHECK, GROUP: message.group})


def _published(message: HalfMessage) -> bytes:
    """A record of another protocol has none."""
    try:
        for name, value in decode_section(message.content.headers):
            if name == PROPERTIES:
                return value or b"\x00\x00"
    except CorruptBatch:
        pass  # headers are as their producer wrote them
    return b"\x00\x00"
