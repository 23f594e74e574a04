"""Methods as objects of pamqp, read and written by its own descriptions of them.

Only the descriptions are pamqp's. Its decoder takes strings that are cut off for whole, copies what is left
of a frame for every value in a table (a hostile table of 128 KiB then takes seconds), and refuses names
that RabbitMQ takes; this one is strict, linear, and leaves names to the broker.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from pamqp.commands import INDEX_MAPPING, Basic, Exchange, Queue

from posthouse.protocols.amqp.codec.access import OLD_METHODS
from posthouse.protocols.amqp.codec.errors import NOT_IMPLEMENTED, FrameError, undecodable
from posthouse.protocols.amqp.codec.events import Command
from posthouse.protocols.amqp.codec.framing import END, FRAME, METHOD_FRAME
from posthouse.protocols.amqp.codec.tables import (
    MalformedTable,
    decode_table,
    decode_typed_table,
    encode_table,
)

_INDEX = Struct(">I")
_NUMBERS: Final = {
    "octet": Struct(">B"),
    "short": Struct(">H"),
    "long": Struct(">I"),
    "longlong": Struct(">Q"),
}


_WITH_TYPES: Final = frozenset((Queue.Declare, Exchange.Declare, Basic.Consume))
"""Their arguments are refused by type."""


class _Argument(NamedTuple):
    """One argument; or up to eight that are bits and share a byte, then with a list of values."""

    names: tuple[str, ...]
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    are_bits: bool = False


class _Layout(NamedTuple):
    kind: type[Command]
    arguments: tuple[_Argument, ...]


def _read_short_string(data: bytes, pos: int) -> tuple[str, int]:
    end = pos + 1 + data[pos]
    return _whole(data, pos + 1, end).decode(), end


def _write_short_string(value: str | None) -> bytes:
    """Only texts for people can be too long, such as one that quotes a name: they are cut."""
    encoded = (value or "").encode(errors="replace")
    if len(encoded) > 255:
        encoded = encoded[:255].decode(errors="ignore").encode()
    return b"%c%b" % (len(encoded), encoded)


def _read_long_string(data: bytes, pos: int) -> tuple[str | bytes, int]:
    end = pos + 4 + _INDEX.unpack_from(data, pos)[0]
    raw = _whole(data, pos + 4, end)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return raw, end


def _write_long_string(value: str | bytes | None) -> bytes:
    encoded = (value or "").encode(errors="replace") if not isinstance(value, bytes) else value
    return _INDEX.pack(len(encoded)) + encoded


def _whole(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise IndexError
    return data[start:end]


def _number(name: str, form: Struct) -> _Argument:
    def read(data: bytes, pos: int) -> tuple[int, int]:
        return form.unpack_from(data, pos)[0], pos + form.size

    def write(value: int | None) -> bytes:
        return form.pack(value or 0)

    return _Argument((name,), read, write)


def _bits(names: tuple[str, ...]) -> _Argument:
    def read(data: bytes, pos: int) -> tuple[list[bool], int]:
        bits = data[pos]
        return [bits >> place & 1 == 1 for place in range(len(names))], pos + 1

    def write(values: list[Any]) -> bytes:
        return bytes((sum(1 << place for place, value in enumerate(values) if value),))

    return _Argument(names, read, write, are_bits=True)


def _table(name: str, kind: type[Command]) -> _Argument:
    decode = decode_typed_table if kind in _WITH_TYPES else decode_table
    return _Argument((name,), decode, lambda value: encode_table(value or {}))


def _layout(kind: type[Command]) -> _Layout:
    arguments: list[_Argument] = []
    bits: tuple[str, ...] = ()
    for name in kind.attributes():
        form = kind.amqp_type(name)
        if form == "bit":
            bits += (name,)
            continue
        if bits:
            arguments.append(_bits(bits))
            bits = ()
        if form == "table":
            arguments.append(_table(name, kind))
        elif form == "shortstr":
            arguments.append(_Argument((name,), _read_short_string, _write_short_string))
        elif form == "longstr":
            arguments.append(_Argument((name,), _read_long_string, _write_long_string))
        else:
            arguments.append(_number(name, _NUMBERS[form]))
    if bits:
        arguments.append(_bits(bits))
    return _Layout(kind, tuple(arguments))


_LAYOUTS: Final = {index: _layout(kind) for index, kind in {**INDEX_MAPPING, **OLD_METHODS}.items()}


def decode_command(payload: bytes) -> Command:
    """The method in a frame's payload. FrameError where there is none, or not all of it, or more."""
    (index,) = _INDEX.unpack_from(payload)
    layout = _LAYOUTS.get(index)
    if layout is None:
        raise FrameError(NOT_IMPLEMENTED, f"no method {index & 0xFFFF} of class {index >> 16}", index)
    command = layout.kind.__new__(layout.kind)
    pos = 4
    try:
        for argument in layout.arguments:
            value, pos = argument.read(payload, pos)
            for name, each in zip(argument.names, value if argument.are_bits else (value,), strict=True):
                setattr(command, name, each)
    except (IndexError, StructError, UnicodeDecodeError, MalformedTable):
        raise undecodable(payload[4:], index) from None
    if pos != len(payload):
        raise undecodable(payload[4:], index)
    return command


def encode_command(channel: int, command: Command) -> bytes:
    """A method as one frame."""
    parts = [_INDEX.pack(command.index)]
    for argument in _LAYOUTS[command.index].arguments:
        values = [getattr(command, name) for name in argument.names]
        parts.append(argument.write(values if argument.are_bits else values[0]))
    payload = b"".join(parts)
    return FRAME.pack(METHOD_FRAME, channel, len(payload)) + payload + END
