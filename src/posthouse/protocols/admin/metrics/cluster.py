"""The cluster, as its holder sees it. A broker that does not share its storage has none of it."""

from typing import Final

from posthouse.protocols.admin.metrics.family import gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.membership import Membership

LIVE: Final = gauge("posthouse_cluster_brokers", "Brokers that share the storage and were seen lately.")
HOLDER: Final = gauge(
    "posthouse_lease_held", "1 if this broker holds the lease and may serve, 0 if its time is over."
)
EPOCH: Final = gauge("posthouse_lease_epoch", "Epoch of the lease; every takeover raises it.")
LEFT: Final = gauge("posthouse_lease_seconds", "How long the lease lasts unless it is renewed.")
FAMILIES: Final = (LIVE, HOLDER, EPOCH, LEFT)


def collect(membership: Membership | None, samples: Samples) -> None:
    if membership is None:
        return
    samples.add(LIVE, len(membership.brokers()))
    samples.add(HOLDER, int(membership.lease is not None and membership.lease.is_valid))
    samples.add(EPOCH, membership.epoch)
    samples.add(LEFT, membership.lease_seconds_left)
