"""How `consume` prints a message: a line of text, JSON, the bytes as they are, or a format of the user's.

There are two kinds of formats. `{key}: {value}` makes a line of text. `%k: %s\\n` is kcat's: it is made of
bytes, and nothing is added to it, not even the end of the line.
"""

import json
import re
from collections.abc import Callable
from struct import Struct
from typing import Any

import typer

from posthouse.cli.escapes import unescaped
from posthouse.cli.record_json import as_json
from posthouse.client.reading import Message

Renderer = Callable[[str, Message], bytes]

_LENGTH = Struct(">i")
FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_PLACEHOLDERS: dict[str, Renderer] = {
    "t": lambda topic, message: topic.encode(),
    "p": lambda topic, message: b"%d" % message.partition,
    "o": lambda topic, message: b"%d" % message.offset,
    "T": lambda topic, message: b"%d" % message.timestamp,
    "k": lambda topic, message: message.key or b"",
    "s": lambda topic, message: message.value or b"",
    "h": lambda topic, message: _header_bytes(message),
    "K": lambda topic, message: b"%d" % _length(message.key),
    "S": lambda topic, message: b"%d" % _length(message.value),
    "R": lambda topic, message: _LENGTH.pack(_length(message.value)),
    "%": lambda topic, message: b"%",
}
_PLACEHOLDER = re.compile(r"%(.)", re.DOTALL)
_NAMED = re.compile(r"\{(?:" + "|".join(FIELDS) + r")[!:}\[.]")


def as_line(topic: str, message: Message) -> bytes:
    value = message.value
    # Most values are ASCII, and need not be decoded to see that they are text.
    if value is None or not value.isascii():
        value = _text(value).encode()
    return value + b"\n"


def as_bytes(topic: str, message: Message) -> bytes:
    """A tombstone has no bytes."""
    return message.value or b""


def as_json_line(topic: str, message: Message) -> bytes:
    return json.dumps(as_json(topic, message), ensure_ascii=False).encode() + b"\n"


def with_format(format: str) -> Renderer:
    """Raises BadParameter."""
    if _PLACEHOLDER.search(format) and not _NAMED.search(format):
        return _with_placeholders(format)
    template = unescaped(format).decode(errors="replace") + "\n"
    try:
        template.format(**dict.fromkeys(FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        named = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise typer.BadParameter(
            f"{format!r} cannot be used ({error}); use {named}, or as in kcat {_listed_placeholders()}",
            param_hint="--format",
        ) from None
    return lambda topic, message: template.format(**_texts(topic, message)).encode(errors="replace")


def _with_placeholders(format: str) -> Renderer:
    parts: list[Renderer] = []
    done = 0
    for found in _PLACEHOLDER.finditer(format):
        if found[1] not in _PLACEHOLDERS:
            raise typer.BadParameter(
                f"{found[0]!r} stands for nothing; use {_listed_placeholders()}", param_hint="--format"
            )
        parts += [_constant(format[done : found.start()]), _PLACEHOLDERS[found[1]]]
        done = found.end()
    parts.append(_constant(format[done:]))
    return lambda topic, message: b"".join([part(topic, message) for part in parts])


def _listed_placeholders() -> str:
    return " ".join(f"%{letter}" for letter in _PLACEHOLDERS)


def _constant(text: str) -> Renderer:
    data = unescaped(text)
    return lambda topic, message: data


def _header_bytes(message: Message) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in message.headers
    )


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _texts(topic: str, message: Message) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": ",".join(f"{name}={_text(value)}" for name, value in message.headers),
    }


def _text(data: bytes | None) -> str:
    """A tombstone has no value (None), which differs from an empty value."""
    return "null" if data is None else data.decode(errors="replace")
