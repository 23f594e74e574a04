"""What more cores and brokers would bring: a model of CPU time, made from the figures of one broker.

A MB costs each kind of process some CPU time, whichever broker handles it. If nothing ever waited, throughput
would end where all cores are busy, or where every broker keeps one core busy: its event loop is one thread.
One broker on this machine reaches a share of that; the model says that more brokers reach the same share.

It knows nothing of disks, networks and locks: it holds as long as PostgreSQL and the object store have cores
and disks that keep up.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.cluster.cpu import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    mb_per_second: float
    costs: Mapping[Kind, float]
    """Milliseconds of CPU time for each MB."""
    brokers: int
    cores: int

    @property
    def share(self) -> float:
        """Of what would be possible if nothing waited."""
        return self.mb_per_second / limit(self.costs, brokers=self.brokers, cores=self.cores)


def limit(costs: Mapping[Kind, float], *, brokers: int, cores: int) -> float:
    """MB/s if nothing waited."""
    by_cores = cores * 1000 / sum(costs.values())
    return min(by_cores, brokers * 1000 / costs[Kind.BROKERS])


def predicted(one: Measured, *, brokers: int, cores: int) -> float:
    """MB/s of as many brokers, where brokers, database, object store and clients share the cores."""
    return one.share * limit(one.costs, brokers=brokers, cores=cores)
