"""Limits on the size of one response."""

from posthouse.protocols.kafka.handler import Context

ALWAYS = 64 * 1024
"""Bytes that a response may always have, even if the memory budget is spent."""
_SHARE = 32
"""A response takes at most this fraction of the free budget: if many clients leave their responses unread,
responses get smaller, and never take all of it."""


def most_bytes(context: Context) -> int:
    """Limit on the bytes of records in a response: smaller while memory is short."""
    return min(context.broker.settings.connection_buffer_bytes, max(context.room // _SHARE, ALWAYS))
