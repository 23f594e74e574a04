"""Whether a response says that something of its request failed."""

from posthouse.protocols.kafka.codec.primitives import Message

_MOST_PARTS = 100
"""Parts of a response that are looked at: one with thousands is not searched to its end."""


def has_error(response: Message) -> bool:
    """Whether the response, or one of its first parts, has an error code."""
    parts = [response]
    for part in parts:  # grows while it is searched, level by level
        for name in part.__slots__:
            value = getattr(part, name)
            if name == "error_code":
                if value:
                    return True
            elif type(value) is list and value and isinstance(value[0], Message):
                parts += value[: _MOST_PARTS - len(parts)] if len(parts) < _MOST_PARTS else ()
    return False
