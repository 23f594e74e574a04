"""The properties of a message as one string.

name 0x01 value 0x02, for each property. The last 0x02 may be missing.
"""

from collections.abc import Mapping
from typing import Final

from posthouse.protocols.rocketmq.codec.errors import BadProperties

_NAME_END: Final = "\x01"
_VALUE_END: Final = "\x02"


def decode_properties(text: str) -> dict[str, str]:
    """Raises BadProperties for a value with a separator in it: clients disagree on what it means.

    What has no name or no separator is ignored, as clients do. Of equal names the last counts.
    """
    properties: dict[str, str] = {}
    for entry in text.split(_VALUE_END):
        name, _, value = entry.partition(_NAME_END)
        if _NAME_END in value:
            raise BadProperties(f"the value of property {name!r} contains a separator (0x01)")
        if name and len(name) < len(entry):
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> str:
    """Raises BadProperties for what would not be read back."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    count = len(properties)
    # One look at all of them is four times as fast as one at each.
    if text.count(_NAME_END) != count or text.count(_VALUE_END) != count or "" in properties:
        raise BadProperties("a property without a name, or with 0x01 or 0x02 in its name or value")
    return text
