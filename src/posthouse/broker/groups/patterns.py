"""Regular expressions over topic names, matched by RE2: in time linear in the name, and in bounded memory.

Clients may subscribe with any expression, and Python's own matcher can take exponential time. Kafka uses
RE2's Java port, so an expression has the same meaning here. It must match the whole name.
"""

import re2

from posthouse.model.errors import InvalidPattern

MAX_LENGTH = 1000
_MAX_MEMORY = 256 * 1024
"""Memory limit of a compiled expression. It also bounds the compile time, during which the event loop
waits."""


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    return options


_OPTIONS = _options()


class TopicPattern:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidPattern(f"an expression may have {MAX_LENGTH} characters, this one has {len(text)}")
        self.text = text
        try:
            # As bytes: RE2 then need not count the characters of every name.
            self._compiled = re2.compile(text.encode(), _OPTIONS)
        except re2.error as error:
            [reason] = error.args
            raise InvalidPattern(f"the expression {text!r}: {reason.decode(errors='replace')}") from None

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name.encode()) is not None
