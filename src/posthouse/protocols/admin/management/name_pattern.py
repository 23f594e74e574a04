"""Regular expressions that clients filter lists by, matched by RE2: in time linear in the name.

Python's own matcher takes exponential time for some expressions, and the event loop would wait for it.
"""

from typing import Final

import re2

from posthouse.protocols.admin.management.errors import bad_request

_MAX_LENGTH: Final = 250
_MAX_MEMORY: Final = 256 * 1024
"""Memory limit of a compiled expression. It also bounds the compile time."""


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    options.case_sensitive = False
    return options


_OPTIONS: Final = _options()


class NamePattern:
    """Found anywhere in a name, in upper or lower case, as in RabbitMQ."""

    def __init__(self, text: str) -> None:
        """Raises Refusal 400."""
        if len(text) > _MAX_LENGTH:
            raise bad_request(f"a pattern may have {_MAX_LENGTH} characters, this one has {len(text)}")
        try:
            self._compiled = re2.compile(text.encode(errors="replace"), _OPTIONS)
        except re2.error as error:
            [reason] = error.args
            raise bad_request(
                f"the pattern is not a regular expression: {reason.decode(errors='replace')}"
            ) from None

    def is_in(self, name: str) -> bool:
        return self._compiled.search(name.encode()) is not None
