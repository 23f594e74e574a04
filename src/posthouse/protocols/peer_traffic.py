"""What a broker has exchanged with the other brokers of its cluster, counted since it took its role."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class PeerTraffic:
    """Owned by the event loop."""

    relayed_requests: int = 0
    """Requests of clients that were sent to the holder of a scope."""
    relay_failures: int = 0
    """Those of them that got no response."""
    relayed_unanswered: int = 0
    """Those of them that wait for their response now."""
    hints_sent: int = 0
    hints_received: int = 0
    hint_links: int = 0
    """Brokers that hints are exchanged with now."""
    hint_lag_seconds: float = 0.0
    """Time from sending to receiving the last hints, by the clocks of two brokers."""
