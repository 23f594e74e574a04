"""Headers of commands, in both serialisations.

JSON      an object of code, language (a name), version, opaque, flag, remark and extFields, whose values
          are strings. Written without blanks: the Go client does not read one behind a colon.

binary    code          2 bytes, signed: larger codes are cut
          language      1 byte, a number
          version       2 bytes
          opaque        4 bytes
          flag          4 bytes
          remark        4 bytes of length, UTF-8
          size          4 bytes, of the fields
          fields        key with 2 bytes of length, value with 4 bytes of length, and so on

Bytes that are not UTF-8 become U+FFFD, as upstream: some clients send text in another encoding.
"""

from struct import Struct
from struct import error as StructError
from typing import Annotated, Final

import msgspec

from posthouse.protocols.rocketmq.codec.codes import LANGUAGES
from posthouse.protocols.rocketmq.codec.commands import Command, Serialization
from posthouse.protocols.rocketmq.codec.errors import BadBody, BadFrame
from posthouse.protocols.rocketmq.codec.lenient_json import Json, decode_json
from posthouse.protocols.rocketmq.codec.members import Members

_LEAST: Final = -(1 << 31)
_MOST: Final = (1 << 31) - 1
_Int32 = Annotated[int, msgspec.Meta(ge=_LEAST, le=_MOST)]

_NUMBERS: Final = {name: number for number, name in enumerate(LANGUAGES)}
_OTHER: Final = _NUMBERS["OTHER"]
_LARGEST_LANGUAGE: Final = 0xFF

_fixed = Struct(">hBhiii")
_key_size = Struct(">H").unpack_from
_value_size = Struct(">I").unpack_from
_pack_fixed = Struct(">HBHiiI").pack
_LONGEST_KEY: Final = 0x7FFF


class _JsonHeader(msgspec.Struct, omit_defaults=True, gc=False):
    code: _Int32
    opaque: _Int32
    flag: _Int32
    language: str | int
    version: _Int32
    remark: str | None = None
    extFields: dict[str, str] | None = None


_decode_json = msgspec.json.Decoder(_JsonHeader).decode
_encode_json = msgspec.json.Encoder().encode


def decode_json_header(header: bytes, body: bytes) -> Command:
    try:
        read = _decode_json(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _unusual_json(header, body)
    language = read.language
    return Command(
        read.code,
        read.opaque,
        read.flag,
        language if type(language) is str else _language(int(language)),
        read.version,
        read.remark,
        {} if read.extFields is None else read.extFields,
        body,
    )


def _unusual_json(header: bytes, body: bytes) -> Command:
    """A header with members missing, values of fields that are no strings, or text that is not UTF-8."""
    try:
        members = Members(decode_json(header), "a header")
        language = members.text_or_number("language", "JAVA")
        return Command(
            _int32(members.number("code")),
            _int32(members.number("opaque", 0)),
            _int32(members.number("flag", 0)),
            language if isinstance(language, str) else _language(language),
            _int32(members.number("version", 0)),
            members.text("remark", "") or None,
            {key: _field(value) for key, value in members.items("extFields") if value is not None},
            body,
        )
    except BadBody as error:
        raise BadFrame(f"a header that cannot be read: {error}") from None


def _field(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise BadBody("a field is not text")


def _int32(value: int) -> int:
    if not _LEAST <= value <= _MOST:
        raise BadBody(f"{value} has more than 32 bits")
    return value


def _unknown_number(language: str) -> int | None:
    """The number that `_language` made this text of, or None if it is a name, however odd."""
    if not (language.isdecimal() and len(language) < 10):
        return None
    number = int(language)
    return number if number >= len(LANGUAGES) and str(number) == language else None


def _language(number: int) -> str:
    return LANGUAGES[number] if 0 <= number < len(LANGUAGES) else str(number)


def decode_binary_header(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _fixed.unpack_from(header)
        pos = _fixed.size + remark_size
        (size,) = _value_size(header, pos)
    except StructError:
        raise BadFrame("a binary header that ends too early") from None
    pos += 4
    if remark_size < 0 or pos + size != len(header):
        raise BadFrame(f"a binary header of {len(header)} bytes, whose lengths contradict that")
    return Command(
        code,
        opaque,
        flag,
        _language(language),
        version,
        header[_fixed.size : pos - 4].decode("utf-8", "replace") if remark_size else None,
        _binary_fields(header, pos),
        body,
        Serialization.BINARY,
    )


def _binary_fields(header: bytes, pos: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    end = len(header)
    try:
        while pos < end:
            (size,) = _key_size(header, pos)
            key_end = pos + 2 + size
            (value_size,) = _value_size(header, key_end)
            value_at = key_end + 4
            key = header[pos + 2 : key_end].decode("utf-8", "replace")
            pos = value_at + value_size
            fields[key] = header[value_at:pos].decode("utf-8", "replace")
    except StructError:
        raise BadFrame("a field of a binary header that ends too early") from None
    if pos != end:
        raise BadFrame("a field of a binary header that is longer than the header")
    return fields


def encode_json_header(command: Command) -> bytes:
    language = command.language
    number = _unknown_number(language)
    return _encode_json(
        _JsonHeader(
            command.code,
            command.opaque,
            command.flag,
            language if number is None else number,
            command.version,
            command.remark,
            command.fields or None,
        )
    )


def encode_binary_header(command: Command) -> bytes:
    """Code and version are cut to 16 bits, as upstream; a name that has no number is OTHER."""
    language = command.language
    number = _NUMBERS.get(language)
    if number is None:
        number = _unknown_number(language)
        number = _OTHER if number is None or number > _LARGEST_LANGUAGE else number
    remark = command.remark.encode() if command.remark else b""
    parts = [b"", remark, b""]
    for name, value in command.fields.items():
        key = name.encode()
        if len(key) > _LONGEST_KEY:
            raise BadFrame(f"a field's name of {len(key)} bytes: {_LONGEST_KEY} are possible")
        text = value.encode()
        parts += (len(key).to_bytes(2), key, len(text).to_bytes(4), text)
    parts[0] = _pack_fixed(
        command.code & 0xFFFF, number, command.version & 0xFFFF, command.opaque, command.flag, len(remark)
    )
    parts[2] = sum(map(len, parts[3:])).to_bytes(4)
    return b"".join(parts)
