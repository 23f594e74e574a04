"""What a client says of a call beside its messages, by name."""

import binascii
from collections.abc import Iterator


class Metadata:
    """Names are lower case. Values of a name that came several times are joined by commas."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields

    def get(self, name: str) -> str | None:
        value = self._fields.get(name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    def get_binary(self, name: str) -> bytes | None:
        """Of a name that ends in "-bin"; None also if the value is no base64."""
        value = self._fields.get(name.encode())
        if value is None:
            return None
        try:
            return binascii.a2b_base64(value + b"=" * (-len(value) % 4), strict_mode=True)
        except binascii.Error:
            return None

    def __contains__(self, name: str) -> bool:
        return name.encode() in self._fields

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._fields)
