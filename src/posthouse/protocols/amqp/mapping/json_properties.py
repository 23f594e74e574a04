"""Property lists as JSON objects, and back: names with underscores, strings as text, headers as an object."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from posthouse.protocols.amqp.codec.tables import MalformedTable, encode_table
from posthouse.protocols.amqp.mapping.errors import MalformedProperties
from posthouse.protocols.amqp.mapping.properties import Flag, parse

_LONGEST: Final = 255
_OCTET = Struct(">B")
_TIMESTAMP = Struct(">Q")


def properties_from_json(values: Mapping[str, Any]) -> bytes:
    """Names that mean nothing are left out, as RabbitMQ does. Raises MalformedProperties."""
    flags, encoded = 0, b""
    for flag in Flag:
        name = flag.name.lower()
        value = values.get(name)
        if value is not None:
            flags |= flag
            encoded += _ENCODERS.get(flag, _text)(name, value)
    return flags.to_bytes(2) + encoded


def properties_to_json(properties: bytes) -> dict[str, Any]:
    """Only those that are set. Raises MalformedProperties."""
    found: dict[str, Any] = {}
    for name, value in parse(properties)._asdict().items():
        if name == "headers":
            if value:
                found[name] = _plain(value)
        elif value is not None:
            found[name] = _plain(value)
    return found


def _plain(value: object) -> object:
    match value:
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return str(value)
        case bool():
            return value
        case int():
            return int(value)
        case _:
            return value


def _text(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise MalformedProperties(f"{name} must be a string")
    data = value.encode()
    if len(data) > _LONGEST:
        raise MalformedProperties(f"{name} may have {_LONGEST} bytes")
    return _OCTET.pack(len(data)) + data


def _number(form: Struct) -> Callable[[str, object], bytes]:
    def encode(name: str, value: object) -> bytes:
        try:
            return form.pack(int(value) if isinstance(value, str) else value)
        except (StructError, ValueError):
            raise MalformedProperties(f"{name} must be a number that fits {form.size} bytes") from None

    return encode


def _headers(name: str, value: object) -> bytes:
    if not isinstance(value, Mapping):
        raise MalformedProperties("headers must be an object")
    try:
        return encode_table(value)
    except (MalformedTable, RecursionError) as error:
        raise MalformedProperties(f"headers: {error}") from None


_ENCODERS: Final[Mapping[Flag, Callable[[str, object], bytes]]] = {
    Flag.HEADERS: _headers,
    Flag.DELIVERY_MODE: _number(_OCTET),
    Flag.PRIORITY: _number(_OCTET),
    Flag.TIMESTAMP: _number(_TIMESTAMP),
}
