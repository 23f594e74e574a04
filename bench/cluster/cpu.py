"""CPU time by kind of process: brokers, PostgreSQL, the object store, clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.cluster.servers import Servers
from bench.cpu_times import cpu_of_tree
from bench.scale.brokers import Broker


class Kind(StrEnum):
    BROKERS = "brokers"
    DATABASE = "PostgreSQL"
    OBJECTS = "object store"
    CLIENTS = "clients"


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    by_kind: dict[Kind, float]

    def since(self, before: "CpuSeconds") -> "CpuSeconds":
        return CpuSeconds({kind: each - before.by_kind[kind] for kind, each in self.by_kind.items()})

    def per(self, megabytes: float) -> dict[Kind, float]:
        """Milliseconds for each MB."""
        return {kind: each * 1000 / megabytes for kind, each in self.by_kind.items()}

    @property
    def total(self) -> float:
        return sum(self.by_kind.values())


def used(servers: Servers, brokers: Sequence[Broker], clients: float = 0.0) -> CpuSeconds:
    """Since they started. `clients` count their own."""
    return CpuSeconds(
        {
            Kind.BROKERS: sum(each.cpu_seconds() for each in brokers),
            Kind.DATABASE: sum(cpu_of_tree(pid) for pid in servers.database_pids),
            Kind.OBJECTS: 0.0 if servers.store_pid is None else cpu_of_tree(servers.store_pid),
            Kind.CLIENTS: clients,
        }
    )
