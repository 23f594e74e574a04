"""The cluster, as this broker sees it. A broker that does not share its storage has none of it."""

from typing import Final

from posthouse.model.scopes import SPREAD
from posthouse.protocols.admin.metrics.family import counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.membership import Membership
from posthouse.protocols.peer_traffic import PeerTraffic

LIVE: Final = gauge("posthouse_cluster_brokers", "Brokers that share the storage and were seen lately.")
HOLDER: Final = gauge(
    "posthouse_lease_held",
    "1 if this broker is the coordinator, and its lease is not over. 0 in members.",
)
EPOCH: Final = gauge("posthouse_lease_epoch", "Epoch of the coordinator; every takeover raises it.")
LEFT: Final = gauge("posthouse_lease_seconds", "How long the coordinator's lease lasts unless it is renewed.")
SCOPES: Final = gauge("posthouse_scopes_held", "Scopes that this broker holds, but `coordinator`.", "kind")
TAKEN: Final = counter("posthouse_scopes_taken_total", "Scopes that this broker took.", "kind")
HANDED_OVER: Final = counter(
    "posthouse_scopes_handed_over_total", "Scopes that this broker handed over to another one.", "kind"
)
MOVES: Final = histogram(
    "posthouse_scope_move_duration_seconds",
    "Time to load a scope that was taken (load), and to end its commits and release it (unload).",
    "step",
)
RELAYED: Final = counter(
    "posthouse_relayed_requests_total",
    "Requests of clients that this broker sent to another one, which holds the scope.",
)
RELAY_FAILURES: Final = counter(
    "posthouse_relay_failures_total", "Relayed requests that got no response: the other broker was lost."
)
UNANSWERED: Final = gauge("posthouse_relayed_requests_unanswered", "Relayed requests without a response yet.")
HINT_LINKS: Final = gauge("posthouse_peer_hint_links", "Brokers that hints are exchanged with.")
HINTS_SENT: Final = counter("posthouse_peer_hints_sent_total", "Hints that this broker sent to others.")
HINTS_RECEIVED: Final = counter("posthouse_peer_hints_received_total", "Hints from other brokers.")
HINT_LAG: Final = gauge(
    "posthouse_peer_hint_lag_seconds",
    "Time from sending to receiving the last hints, by the clocks of two brokers.",
)
FAMILIES: Final = (
    LIVE,
    HOLDER,
    EPOCH,
    LEFT,
    SCOPES,
    TAKEN,
    HANDED_OVER,
    MOVES,
    RELAYED,
    RELAY_FAILURES,
    UNANSWERED,
    HINT_LINKS,
    HINTS_SENT,
    HINTS_RECEIVED,
    HINT_LAG,
)


def collect(membership: Membership | None, traffic: PeerTraffic | None, samples: Samples) -> None:
    if traffic is not None:
        samples.add(RELAYED, traffic.relayed_requests)
        samples.add(RELAY_FAILURES, traffic.relay_failures)
        samples.add(UNANSWERED, traffic.relayed_unanswered)
        samples.add(HINT_LINKS, traffic.hint_links)
        samples.add(HINTS_SENT, traffic.hints_sent)
        samples.add(HINTS_RECEIVED, traffic.hints_received)
        samples.add(HINT_LAG, traffic.hint_lag_seconds)
    if membership is None:
        return
    samples.add(LIVE, len(membership.brokers()))
    samples.add(HOLDER, int(membership.coordinates and membership.may_serve()))
    samples.add(EPOCH, membership.epoch)
    samples.add(LEFT, membership.lease_seconds_left)
    for kind in SPREAD:
        samples.add(SCOPES, membership.moves.held[kind], kind)
        samples.add(TAKEN, membership.moves.taken[kind], kind)
        samples.add(HANDED_OVER, membership.moves.handed_over[kind], kind)
    samples.add(MOVES, membership.moves.load_seconds, "load")
    samples.add(MOVES, membership.moves.unload_seconds, "unload")
