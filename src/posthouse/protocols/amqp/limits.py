"""Limits of one AMQP connection."""

from dataclasses import dataclass

MIB = 1024 * 1024

SMALLEST_FRAME_MAX = 4096
"""No client may ask for less: the standard says so."""
UNKNOWN_FRAME_MAX = 64 * 1024
"""Before the login: credentials are the longest thing that a client sends then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLimits:
    channel_max: int = 2047
    """Channels of a connection."""
    frame_max: int = 131_072
    """Bytes of a frame, with header and end octet."""
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
    """Time that a client has to answer connection.close."""
    finishing_seconds: float = 1.0
    """The same when the broker stops: many clients read their socket only when they need it."""
    lingering_seconds: float = 3.0
    """Time that a client has to close its socket after close-ok; input is dropped meanwhile."""
    unknown_bytes: int = 2 * UNKNOWN_FRAME_MAX
    """Bytes that a client may send before it has logged in."""
    failed_login_seconds: float = 0.1
    """Delay of the answer to a wrong password, against guessing."""
    refusal_seconds: float = 1.0
    """Time until the socket of a client that was refused without an answer is closed."""
    stalled_seconds: int = 30
    """A client that reads nothing for this time although frames wait is closed, as by RabbitMQ, also if it
    sends heartbeats: otherwise it would hold its messages for ever."""
    storage_retry_seconds: float = 1.0
    """Time for which a connection is blocked after storage was full."""
