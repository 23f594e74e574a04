"""How much one answer may hold."""

from posthouse.protocols.kafka.handler import Context

ALWAYS = 64 * 1024
"""So much may be answered even where memory is spent."""
_SHARE = 32
"""Of the memory that is left one answer takes no more than this part: many who do not take theirs get ever
less, and never all of it."""


def most_bytes(context: Context) -> int:
    """Of records: what a client may leave untaken, and less where memory is short."""
    return min(context.broker.settings.connection_buffer_bytes, max(context.room // _SHARE, ALWAYS))
