"""The id of a message, whichever client has brought it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from posthouse.consistency.errors import BadMessage

HEADER: Final = "amqp.message-id"
"""That all protocols of Posthouse know: AMQP clients see the property `message_id`."""
_SOURCE: Final = "ce_source"
_EVENT: Final = "ce_id"
"""Of a CloudEvent: unique among those of one source only."""
_HEADERS: Final = (HEADER, "UNIQ_KEY", "webhook-id", _EVENT)
_ADVICE: Final = "pass its id as text"


def message_id_of(message: Any) -> str:
    """From text as it is; from a message of confluent-kafka, aiokafka, kafka-python, aio-pika or RocketMQ, or
    from pika's properties: its id, or else its place in the log. Raises BadMessage."""
    if isinstance(message, str):
        return message
    id = _from_headers(_called(message, "headers")) or _text(_attribute(message, "message_id"))
    if id is None and (properties := getattr(message, "properties", None)) is not None:
        id = _text(getattr(properties, "message_id", None))
    if id is not None:
        return id
    topic, partition, offset = (_called(message, name) for name in ("topic", "partition", "offset"))
    if isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int):
        return f"{topic}/{partition}/{offset}"
    raise BadMessage(f"a {type(message).__name__} without an id; {_ADVICE}")


def _called(message: Any, name: str) -> Any:
    """confluent-kafka has methods where others have attributes."""
    value = getattr(message, name, None)
    return value() if callable(value) else value


def _attribute(message: Any, name: str) -> Any:
    value = getattr(message, name, None)
    return None if callable(value) else value


def _from_headers(headers: Any) -> str | None:
    if isinstance(headers, Mapping):
        pairs: Iterable[Any] = headers.items()
    elif isinstance(headers, Iterable) and not isinstance(headers, str | bytes):
        pairs = headers
    else:
        return None
    found = {name: text for name, value in pairs if (text := _text(value))}
    if _EVENT in found and _SOURCE in found:
        found[_EVENT] = f"{found[_SOURCE]}/{found[_EVENT]}"
    return next((found[name] for name in _HEADERS if name in found), None)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = _decoded(value)
    return value if isinstance(value, str) and value else None


def _decoded(value: bytes) -> str:
    """Different ids stay different: those that databases do not take for text are shown in hexadecimal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex()}"
    return f"hex:{value.hex()}" if "\0" in text else text
