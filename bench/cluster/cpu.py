"""CPU time by kind of process: brokers, PostgreSQL, the object store, clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.cluster.servers import Servers
from bench.processes import TICKS
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
            Kind.DATABASE: sum(_of_tree(pid) for pid in servers.database_pids),
            Kind.OBJECTS: 0.0 if servers.store_pid is None else _of_tree(servers.store_pid),
            Kind.CLIENTS: clients,
        }
    )


def _of_tree(pid: int) -> float:
    """Of a process, its children, and those children that have ended."""
    own = _times(pid)
    if own is None:
        raise LookupError("the process has ended")
    children = [_times(child) for child in _children(pid)]
    return sum(own) + sum(sum(each[:2]) for each in children if each is not None)


def _children(pid: int) -> list[int]:
    processes = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [each for each in processes if (fields := _fields(each)) is not None and int(fields[1]) == pid]


def _times(pid: int) -> tuple[float, ...] | None:
    """User, system, and both of the children that have ended. None if the process has."""
    fields = _fields(pid)
    return None if fields is None else tuple(int(each) / TICKS for each in fields[11:15])


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
