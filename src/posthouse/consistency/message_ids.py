"""The id of a message, whichever client has brought it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from posthouse.consistency.errors import BadMessage

HEADER: Final = "amqp.message-id"
"""That all protocols of Posthouse know: AMQP clients see the property `message_id`."""
_HEADERS: Final = (HEADER, "UNIQ_KEY", "webhook-id", "ce_id")
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
    found = {name: value for name, value in pairs if name in _HEADERS}
    return next((text for name in _HEADERS if (text := _text(found.get(name)))), None)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value if isinstance(value, str) and value else None
