"""What people are shown of a connection, whatever its protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelInfo:
    """One of several conversations that share a connection, where a protocol has them."""

    number: int
    is_transactional: bool = False
    confirms: bool = False
    prefetch: int = 0
    global_prefetch: int = 0
    consumers: int = 0
    unacked: int = 0
    unconfirmed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    peer: str
    """Address and port of the client. Unique among open connections of a listener."""
    protocol: str
    since_ms: int
    """When it was accepted, in milliseconds since 1970."""
    user: str | None = None
    """None before the login, and where logins are not required."""
    client: str = ""
    """Name of the client's software, with its version, as far as it has told."""
    namespace: str | None = None
    """Virtual host; None for protocols without."""
    has_tls: bool = False
    is_paused: bool = False
    """Back-pressure: its socket is not read from."""
    received_bytes: int = 0
    sent_bytes: int = 0
    held_bytes: int = 0
    """Of the memory budget."""
    client_properties: Mapping[str, object] = field(default_factory=dict)
    """What the client tells of its software, where the protocol has it told."""
    mechanism: str = ""
    """Of the login."""
    heartbeat_seconds: int = 0
    frame_max: int = 0
    channel_max: int = 0
    channels: tuple[ChannelInfo, ...] = field(default=())
