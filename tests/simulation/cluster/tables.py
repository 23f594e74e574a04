"""The tables of the simulated database, and the functions for leases, scopes and brokers.

The functions do what those of the same names in `storage/shared/schema` do. A statement takes effect at one
moment, so nothing here waits for a lock.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import psycopg

from posthouse.model.scopes import COORDINATOR, SCOPES
from posthouse.storage.shared.migrations import newest_version

SECOND = 1_000_000_000


class Raised(psycopg.DatabaseError):
    """An exception of a function."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@dataclass(slots=True)
class BrokerRow:
    id: int
    name: str
    incarnation: UUID
    addresses: dict[str, str]
    rack: str | None
    version: str
    started_at: int
    seen_at: int
    is_ready: bool = False
    is_draining: bool = False


@dataclass(slots=True)
class LeaseRow:
    epoch: int
    until: int


@dataclass(slots=True)
class ScopeRow:
    holder: UUID | None = None
    epoch: int = 0
    wanted: int | None = None


@dataclass(slots=True)
class TopicRow:
    name: str
    partitions: int
    overrides: dict[str, Any]
    namespaces: int | None
    """The number of the scope of namespaces that it belongs to."""
    is_deleted: bool = False


@dataclass(slots=True)
class LogRow:
    id: int
    topic: UUID
    partition: int
    namespaces: int | None
    start: int = 0
    next: int = 0
    bytes: int = 0
    first_open: int | None = None
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class RunRow:
    base: int
    last: int
    inline: int | None
    object: int | None
    pos: int
    size: int
    max_time: int
    created_ms: int
    refs: bytes | None


@dataclass(frozen=True, slots=True)
class ObjectRow:
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class ProducerRow:
    epoch: int
    batches: tuple[int, ...]
    last_time: int
    open_since: int


@dataclass(frozen=True, slots=True)
class AbortedRow:
    last: int
    first: int
    producer: int


@dataclass(slots=True)
class CommitterRow:
    number: int = 0
    answer: tuple[Any, ...] | None = None
    """None of one that was retired."""


@dataclass(slots=True)
class Tables:
    now: int = 0
    """The database's own clock, in nanoseconds."""
    fences: bool = True
    """Whether a broker whose scopes others have taken is refused. A negative control shows what that is good
    for."""
    guards_queues: bool = True
    """Whether only the holder of its scope appends to a log that feeds queues. As above."""
    cluster: tuple[str, bytes] | None = None
    loss: str | None = None
    brokers: dict[str, BrokerRow] = field(default_factory=dict)
    leases: dict[UUID, LeaseRow] = field(default_factory=dict)
    writers: dict[UUID, int] = field(default_factory=dict)
    last_epoch: int = 0
    scopes: dict[str, ScopeRow] = field(
        default_factory=lambda: {name: ScopeRow() for name in sorted(each.name for each in SCOPES)}
    )
    topics: dict[UUID, TopicRow] = field(default_factory=dict)
    logs: dict[int, LogRow] = field(default_factory=dict)
    log_ids: dict[tuple[UUID, int], int] = field(default_factory=dict)
    """Identities that were given out, also in transactions that did not count."""
    runs: dict[int, list[RunRow]] = field(default_factory=dict)
    """By log, in the order of their offsets."""
    objects: list[ObjectRow] = field(default_factory=list)
    inline: list[bytes] = field(default_factory=list)
    """The number of one is its place, from 1 on."""
    producers: dict[tuple[int, int], ProducerRow] = field(default_factory=dict)
    aborted: dict[int, list[AbortedRow]] = field(default_factory=dict)
    state: dict[tuple[int, bytes], tuple[bytes, bytes]] = field(default_factory=dict)
    """Owner and value, by space and key."""
    committers: dict[tuple[UUID, int], CommitterRow] = field(default_factory=dict)
    changes: list[tuple[list[UUID], list[int]]] = field(default_factory=list)
    """Topics and spaces. The number of a change is its place, from 1 on."""

    def copy(self) -> "Tables":
        """For a transaction: what it does there is not seen here. Identities are given out only once."""
        return replace(
            self,
            brokers={key: replace(row) for key, row in self.brokers.items()},
            leases={key: replace(row) for key, row in self.leases.items()},
            writers=dict(self.writers),
            scopes={key: replace(row) for key, row in self.scopes.items()},
            topics={key: replace(row) for key, row in self.topics.items()},
            logs={key: replace(row) for key, row in self.logs.items()},
            runs={key: list(rows) for key, rows in self.runs.items()},
            objects=list(self.objects),
            inline=list(self.inline),
            producers=dict(self.producers),
            aborted={key: list(rows) for key, rows in self.aborted.items()},
            state=dict(self.state),
            committers={key: replace(row) for key, row in self.committers.items()},
            changes=list(self.changes),
        )

    # Leases and scopes

    def fence(self, holder: UUID) -> None:
        self.leases.pop(holder, None)
        self.writers.pop(holder, None)

    def check_lease(self, holder: UUID, epoch: int, scopes: Iterable[str] = ()) -> None:
        if not self.fences:
            return
        if self.writers.get(holder) != epoch:
            raise Raised("PH001", f"the lease of epoch {epoch} is lost")
        for name in scopes:
            if self.scopes[name].holder != holder:
                raise Raised("PH001", f"the broker does not hold the scope {name}")

    def take_lease(self, holder: UUID, seconds: float, seen: str) -> dict[str, Any]:
        lost = self.find_loss(holder, json.loads(seen))
        if lost is not None:
            return {"loss": lost}
        for scope in self.scopes.values():
            if scope.holder == holder:
                scope.holder = None
        self.fence(holder)
        self.last_epoch += 1
        self.leases[holder] = LeaseRow(self.last_epoch, self.now + int(seconds * SECOND))
        self.writers[holder] = self.last_epoch
        return {"epoch": self.last_epoch}

    def renew_lease(self, holder: UUID, epoch: int, seconds: float) -> bool:
        lease = self.leases.get(holder)
        if lease is None or lease.epoch != epoch:
            return False
        lease.until = self.now + int(seconds * SECOND)
        return True

    def release_lease(self, holder: UUID, epoch: int) -> None:
        lease = self.leases.get(holder)
        if lease is not None and lease.epoch == epoch:
            self.fence(holder)
            for scope in self.scopes.values():
                if scope.holder == holder:
                    scope.holder = None

    def lease_seconds(self, holder: UUID | None) -> float:
        lease = None if holder is None else self.leases.get(holder)
        return 0.0 if lease is None else max(0, lease.until - self.now) / SECOND

    def take_scopes(self, holder: UUID, epoch: int, names: list[str], seen: str) -> dict[str, Any]:
        self.check_lease(holder, epoch)
        if self.lease_seconds(holder) <= 0:
            return {"taken": {}}
        lost = self.find_loss(holder, json.loads(seen))
        if lost is not None:
            return {"loss": lost}
        wanted = {name: self.scopes[name] for name in names}
        for scope in wanted.values():
            other = scope.holder
            if other not in (None, holder) and self.lease_seconds(other) <= 0 and self.fences:
                self.fence(other)
        taken = {}
        for name, scope in wanted.items():
            if scope.holder in (None, holder) or self.lease_seconds(scope.holder) <= 0:
                scope.holder = holder
                scope.epoch += 1
                taken[name] = scope.epoch
        return {"taken": taken}

    def release_scope(self, holder: UUID, epoch: int, name: str) -> None:
        if self.scopes[name].holder == holder and self.writers.get(holder) == epoch:
            self.scopes[name].holder = None

    # Commits that are missing

    def commits_of(self, incarnation: UUID | None) -> int:
        return sum(each.number for (owner, _), each in self.committers.items() if owner == incarnation)

    def find_loss(self, holder: UUID, seen: Mapping[str, Any]) -> str | None:
        if self.loss is not None:
            return self.loss
        coordinator = self.scopes[COORDINATOR.name]
        seen_holder = None if seen.get("holder") is None else UUID(seen["holder"])
        epoch, commits = coordinator.epoch, self.commits_of(seen_holder)
        lost = None
        if epoch < seen.get("epoch", 0):
            lost = f"the coordinator has epoch {epoch}, and had {seen['epoch']}"
        elif (
            epoch == seen.get("epoch", 0)
            and None not in (coordinator.holder, seen_holder)
            and coordinator.holder != seen_holder
        ):
            lost = f"the coordinator of epoch {epoch} is another broker than before"
        elif commits < seen.get("commits", 0):
            lost = f"the coordinator's last commit has number {commits}, and had {seen['commits']}"
        elif self.commits_of(holder) < seen.get("own_commits", 0):
            lost = f"a broker's last commit has a lower number than {seen['own_commits']}"
        elif any(self.commits_of(UUID(each)) < had for each, had in seen.get("commits_of", {}).items()):
            lost = "another broker's last commit has a lower number than it had"
        if lost is not None:
            self.record_loss(lost, 0)
        return lost

    def record_loss(self, loss: str, confirmed: int) -> None:
        if self.loss is None:
            self.loss = loss

    # Brokers

    def register_broker(
        self,
        name: str,
        incarnation: UUID,
        addresses: str,
        rack: str | None,
        version: str,
        schema: int,
        id: int | None,
    ) -> dict[str, Any]:
        before = self.brokers.get(name)
        number = len(self.brokers) + 1 if before is None else before.id
        self.brokers[name] = BrokerRow(
            id=number,
            name=name,
            incarnation=incarnation,
            addresses=json.loads(addresses),
            rack=rack,
            version=version,
            started_at=self.now,
            seen_at=self.now,
            is_draining=before is not None and before.is_draining,
        )
        return {"id": number}

    def heartbeat(
        self, incarnation: UUID, live_seconds: float, seen_holder: UUID | None, seen: list[UUID], ready: bool
    ) -> dict[str, Any]:
        own = next((each for each in self.brokers.values() if each.incarnation == incarnation), None)
        if own is not None:
            own.seen_at = self.now
            own.is_ready = ready
        coordinator = self.scopes[COORDINATOR.name]
        known = dict.fromkeys([*(each.incarnation for each in self.brokers.values()), *seen])
        return {
            "is_registered": own is not None,
            "needs": newest_version_once(),
            "holder": None if coordinator.holder is None else str(coordinator.holder),
            "epoch": coordinator.epoch,
            "seconds_left": self.lease_seconds(coordinator.holder),
            "holders": {
                name: str(each.holder) for name, each in self.scopes.items() if each.holder is not None
            },
            "wanted": {name: each.wanted for name, each in self.scopes.items() if each.wanted is not None},
            "commits": self.commits_of(coordinator.holder),
            "seen_commits": None if seen_holder is None else self.commits_of(seen_holder),
            "own_commits": self.commits_of(incarnation),
            "commits_of": {str(each): self.commits_of(each) for each in known},
            "timeline": 1,
            "confirmed_losses": 0,
            "loss": self.loss,
            "brokers": [
                {
                    "id": each.id,
                    "name": each.name,
                    "incarnation": str(each.incarnation),
                    "addresses": each.addresses,
                    "rack": each.rack,
                    "version": each.version,
                    "seconds_since_start": (self.now - each.started_at) / SECOND,
                    "is_ready": each.is_ready,
                    "lease_seconds_left": self.lease_seconds(each.incarnation),
                    "is_draining": each.is_draining,
                }
                for each in sorted(self.brokers.values(), key=lambda each: each.id)
                if each.seen_at > self.now - int(live_seconds * SECOND)
            ],
        }

    def sign_off(self, incarnation: UUID) -> int | None:
        for each in self.brokers.values():
            if each.incarnation == incarnation:
                each.seen_at = -(2**62)
                return each.id
        return None

    def drain_broker(self, name: str, is_draining: bool) -> bool:
        if name not in self.brokers:
            return False
        self.brokers[name].is_draining = is_draining
        return True

    def want_scope(self, scope: str, broker: str | None) -> bool:
        if scope not in self.scopes or (broker is not None and broker not in self.brokers):
            return False
        self.scopes[scope].wanted = None if broker is None else self.brokers[broker].id
        return True

    # Definitions

    def log_id(self, topic: UUID, partition: int) -> int:
        return self.log_ids.setdefault((topic, partition), len(self.log_ids) + 1)

    def logs_of(self, topics: Iterable[UUID]) -> list[LogRow]:
        wanted = set(topics)
        return [each for each in self.logs.values() if each.topic in wanted]

    def note_change(self, topics: list[UUID], spaces: list[int]) -> int:
        self.changes.append((topics, spaces))
        return len(self.changes)


_VERSIONS: list[int] = []


def newest_version_once() -> int:
    """It is read from files, which do not change."""
    if not _VERSIONS:
        _VERSIONS.append(newest_version())
    return _VERSIONS[0]
