"""Languages and versions of clients of the gRPC protocol, as those of the remoting protocol are written."""

import re
from typing import Final

from posthouse.protocols.rocketmq.codec.codes import LANGUAGES

_OTHER: Final = "OTHER"
_OTHERWISE: Final = {"DOT_NET": "DOTNET", "GOLANG": "GO"}
_UNKNOWN: Final = 0
_VERSION: Final = re.compile(r"v?([4-9])\.(\d)\.(\d)(?!\d)")
_OF_4_0_0: Final = 213
"""A snapshot and a release have a number each: 4.9.8 is 409, 5.5.0 is 513."""


def language_of(name: str) -> str:
    known = _OTHERWISE.get(name.upper(), name.upper())
    return known if known in LANGUAGES else _OTHER


def version_number(text: str) -> int:
    """0 for one that has no number."""
    found = _VERSION.match(text)
    if found is None:
        return _UNKNOWN
    major, minor, patch = map(int, found.groups())
    return _OF_4_0_0 + 200 * (major - 4) + 20 * minor + 2 * patch
