"""JSON as Java's fastjson writes it, which is more than JSON.

Keys of a map need not be strings: it writes numbers bare, `{0:"host:port"}`, and objects as they are,
`{{"brokerName":"b","queueId":0,"topic":"t"}:5}`. Such a key becomes the text that stands there, which for an
object is JSON again.
"""

import re
from json import JSONDecoder
from typing import Final, TypeAlias

import msgspec

from posthouse.protocols.rocketmq.codec.errors import BadBody

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

DEFAULT_MAX_SIZE: Final = 1024 * 1024
MAX_LENIENT_SIZE: Final = 256 * 1024
"""Bytes of a body that is not strict JSON: such bodies are parsed in Python."""
MAX_DEPTH: Final = 32

_blanks = re.compile(r"[ \t\r\n]*").match
_scan = JSONDecoder(strict=False).raw_decode
_strict = msgspec.json.Decoder().decode


def decode_json(data: bytes | memoryview, *, max_size: int = DEFAULT_MAX_SIZE) -> Json:
    """Raises BadBody."""
    if len(data) > max_size:
        raise BadBody(f"a body of {len(data)} bytes, where {max_size} are allowed")
    try:
        value: Json = _strict(data)
    except RecursionError:
        raise BadBody("JSON that is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _lenient(data)
    return value


def _lenient(data: bytes | memoryview) -> Json:
    if len(data) > MAX_LENIENT_SIZE:
        raise BadBody(f"not JSON, and {len(data)} bytes: fastjson's JSON may have {MAX_LENIENT_SIZE}")
    # As Java decodes bytes. A client that writes a tag in GBK is still served.
    text = str(data, "utf-8", "replace")
    value, pos = _value(text, 0, 0)
    if pos != len(text):
        raise BadBody(f"not JSON: more follows at character {pos}")
    return value


def _value(text: str, pos: int, depth: int) -> tuple[Json, int]:
    """The value at `pos`, and where the next token begins."""
    pos = _after_blanks(text, pos)
    start = text[pos : pos + 1]
    value: Json
    if start == "{":
        value, pos = _object(text, pos + 1, depth + 1)
    elif start == "[":
        value, pos = _array(text, pos + 1, depth + 1)
    else:
        value, pos = _scalar(text, pos)
    return value, _after_blanks(text, pos)


def _object(text: str, pos: int, depth: int) -> tuple[dict[str, Json], int]:
    _check_depth(depth)
    members: dict[str, Json] = {}
    pos = _after_blanks(text, pos)
    if text[pos : pos + 1] == "}":
        return members, pos + 1
    while True:
        start = _after_blanks(text, pos)
        key, pos = _value(text, start, depth)
        if not isinstance(key, str):
            key = text[start:pos].rstrip()
        if text[pos : pos + 1] != ":":
            raise BadBody(f"not JSON: no colon at character {pos}")
        members[key], pos = _value(text, pos + 1, depth)
        if text[pos : pos + 1] == "}":
            return members, pos + 1
        pos = _behind_comma(text, pos)


def _array(text: str, pos: int, depth: int) -> tuple[list[Json], int]:
    _check_depth(depth)
    items: list[Json] = []
    pos = _after_blanks(text, pos)
    if text[pos : pos + 1] == "]":
        return items, pos + 1
    while True:
        item, pos = _value(text, pos, depth)
        items.append(item)
        if text[pos : pos + 1] == "]":
            return items, pos + 1
        pos = _behind_comma(text, pos)


def _scalar(text: str, pos: int) -> tuple[Json, int]:
    try:
        value, pos = _scan(text, pos)
    except ValueError as error:  # of JSON, or of int() for a number of thousands of digits
        raise BadBody(f"not JSON: {error}") from None
    if isinstance(value, str) and not value.isascii():
        # Half of a surrogate pair could not be encoded later.
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value, pos


def _after_blanks(text: str, pos: int) -> int:
    found = _blanks(text, pos)
    assert found is not None
    return found.end()


def _behind_comma(text: str, pos: int) -> int:
    if text[pos : pos + 1] != ",":
        raise BadBody(f"not JSON: no comma at character {pos}")
    return pos + 1


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadBody("JSON that is nested too deeply")
