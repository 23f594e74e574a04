"""What one AMQP connection may ask for."""

from dataclasses import dataclass

MIB = 1024 * 1024

SMALLEST_FRAME_MAX = 4096
"""No client may ask for less: the standard says so."""
UNKNOWN_FRAME_MAX = 64 * 1024
"""Of clients that have yet to log in. The longest thing that they have to say is who they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLimits:
    channel_max: int = 2047
    """Channels of a connection."""
    frame_max: int = 131_072
    """Bytes of a frame, with all that is around its payload."""
    heartbeat: int = 60
    """Seconds, as offered to clients; they may choose another number, or 0 for none."""
    max_body: int = 128 * MIB
    """Bytes of a message."""
    max_unacked: int = 100_000
    """Deliveries of a channel that wait for their acknowledgement, whatever prefetch it asked for."""
    max_own_queues: int = 1000
    """Exclusive queues with names of the broker, of a user who needs no permission for them and has none."""
    max_transaction: int = 128 * MIB
    """Bytes of the messages of a transaction, which are in memory until it is committed."""
    handshake_seconds: float = 10.0
    """From the first byte to an open connection."""
    closing_seconds: float = 10.0
    """How long the answer to a close is waited for."""
    finishing_seconds: float = 1.0
    """The same when the broker stops: many clients look at their socket only when they want something."""
    lingering_seconds: float = 3.0
    """How long a client that closed has time to close its socket, too: what it still sends is thrown away."""
    unknown_bytes: int = 2 * UNKNOWN_FRAME_MAX
    """All that a client may send before it has logged in."""
    failed_login_seconds: float = 0.1
    """How long whoever has a wrong password waits to be told so."""
    refusal_seconds: float = 1.0
    """How long a client that is refused without a word, or has lost us, waits until its socket is closed."""
    stalled_seconds: int = 30
    """How long a client may take nothing of what waits for it, as with RabbitMQ. Heartbeats that it sends do
    not help: one that does not read would hold its messages for ever."""
    storage_retry_seconds: float = 1.0
    """How long a connection whose messages found no space is blocked until it may try again."""
