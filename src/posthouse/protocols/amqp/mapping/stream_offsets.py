"""The header that tells the reader of a stream where a message is in it."""

from struct import Struct
from typing import Final, NamedTuple

from posthouse.protocols.amqp.mapping.changes import set_headers
from posthouse.protocols.amqp.mapping.properties import Flag, spans

HEADER: Final = "x-stream-offset"
MAX_CACHED: Final = 1024
LONGEST_CACHED: Final = 2048

_OFFSET = Struct(">q")


class _Form(NamedTuple):
    """A property list that has the header, but for the number: it lies between the two."""

    before: bytes
    after: bytes


class StreamOffsets:
    """Caches property lists: most messages of a stream have the same one."""

    def __init__(self) -> None:
        self._forms: dict[bytes, _Form] = {}

    def added_to(self, properties: bytes, offset: int) -> bytes:
        """As RabbitMQ does it: the last of the headers, instead of one that the publisher called so."""
        form = self._forms.get(properties)
        if form is None:
            form = _form_of(properties)
            if len(properties) <= LONGEST_CACHED:
                if len(self._forms) >= MAX_CACHED:
                    self._forms.clear()
                self._forms[properties] = form
        return form.before + _OFFSET.pack(offset) + form.after


def _form_of(properties: bytes) -> _Form:
    full = set_headers(properties, {HEADER: 0})
    end = spans(full)[Flag.HEADERS][1]
    return _Form(full[: end - _OFFSET.size], full[end:])
