"""Quotas: rate limits for a user or client id: bytes written and read per second, and request time.

A quota is set for an *entity*: a user, a client id, both, or the default of either. The most specific one
applies to a connection. Connections that share a quota share one token bucket, which fills at the rate of the
quota and holds one second's worth. A client that takes more is throttled until its debt is paid.

Where several brokers share a storage, a byte rate holds over all of them, approximately: see `shared_rate`.
The percentage is one of each broker's event loop.

Storage has one entry per entity in `Space.QUOTAS`: key and value are JSON in UTF-8.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from posthouse.broker.access.shared_rate import SharedRate
from posthouse.broker.access.token_bucket import TokenBucket
from posthouse.broker.changes import SerializedChanges
from posthouse.broker.cluster_usage import NO_OTHERS, ClusterUsage
from posthouse.broker.stored_entries import readable_entries
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidQuota
from posthouse.model.usage import Limited, Use
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space


class Quota(StrEnum):
    """Kafka's names."""

    WRITTEN = "producer_byte_rate"
    READ = "consumer_byte_rate"
    TIME = "request_percentage"
    """Percentage of the time of the event loop, which serves all clients."""


class Default:
    """All users or clients without a quota of their own."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()
Who = str | Default | None

_MAX_BUCKETS = 10_000
_LONGEST_REMEMBERED = 256
"""Maximum length of a client id in the table; longer ones are replaced by a digest. Clients choose them
freely."""


@dataclass(frozen=True, slots=True)
class Entity:
    user: Who = None
    client: Who = None

    def check(self) -> None:
        if self.user is None and self.client is None:
            raise InvalidQuota("a quota is for a user, a client id, or both")

    def key(self) -> bytes:
        given = {"user": self.user, "client": self.client}
        return json.dumps(
            {
                name: {"default": True} if who is DEFAULT else who
                for name, who in given.items()
                if who is not None
            }
        ).encode()

    @classmethod
    def from_key(cls, key: bytes) -> "Entity":
        given = {name: DEFAULT if isinstance(who, dict) else who for name, who in json.loads(key).items()}
        return cls(given.get("user"), given.get("client"))


_KINDS = {Quota.WRITTEN: Limited.WRITTEN, Quota.READ: Limited.READ}
"""Byte rates hold over all brokers. The percentage is one of each broker's event loop."""
_Rate = SharedRate | TokenBucket


class Quotas:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock, cluster: ClusterUsage = NO_OTHERS) -> None:
        self._storage = storage
        self._cluster = cluster
        self._changes = SerializedChanges()
        self._clock = clock
        self._quotas: dict[Entity, dict[Quota, float]] = {}
        self._buckets: dict[tuple[Quota, Entity], _Rate] = {}
        self._found: dict[tuple[str, str], dict[Quota, _Rate]] = {}
        self.throttles = 0
        """How often a connection has waited,"""
        self.throttled_seconds = 0.0
        """and for how long in all."""
        self.is_empty = True
        """Whether no quota is set, as in most brokers."""

    def load(self) -> None:
        self._quotas = dict(_read(*entry) for entry in self._storage.take_state(Space.QUOTAS).items())
        self._changed()

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed quotas; `state` is the content of `Space.QUOTAS`."""
        self._quotas = dict(readable_entries(Space.QUOTAS, state, _read))
        self._changed()

    def _changed(self) -> None:
        self._buckets.clear()
        self._found.clear()
        self.is_empty = not self._quotas

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[Quota, float]]]:
        return iter(self._quotas.items())

    async def change(
        self, entity: Entity, changes: Mapping[Quota, float | None], *, validate_only: bool = False
    ) -> None:
        """Change quotas; None removes one. Raises InvalidQuota."""
        entity.check()
        for name, rate in changes.items():
            if rate is not None and not (math.isfinite(rate) and rate > 0):
                raise InvalidQuota(f"{name} must be above 0; remove it to have no limit")
        if not validate_only:
            await self._changes.make(self._change(entity, changes))

    async def _change(self, entity: Entity, changes: Mapping[Quota, float | None]) -> None:
        rates = {**self._quotas.get(entity, {})}
        for name, rate in changes.items():
            if rate is None:
                rates.pop(name, None)
            else:
                rates[name] = rate
        value = json.dumps(rates).encode() if rates else None
        await self._storage.commit([Put(Space.QUOTAS, entity.key(), value)])
        if rates:
            self._quotas[entity] = rates
        else:
            self._quotas.pop(entity, None)
        self._changed()

    def take(self, quota: Quota, user: str, client: str, amount: float) -> float:
        """Take the amount; returns the throttle time of the connection in seconds."""
        if self.is_empty:
            return 0.0
        short = client if len(client) <= _LONGEST_REMEMBERED else _digest(client)
        found = self._found.get((user, short))
        if found is None:
            if len(self._found) >= _MAX_BUCKETS:
                self._forget_clients()
            found = self._found[user, short] = self._buckets_of(user, client, short)
        bucket = found.get(quota)
        if bucket is None:
            return 0.0
        return bucket.take(amount, self._clock.monotonic())

    def uses(self, least: float) -> Iterator[Use]:
        """What clients of this broker use of byte rates, if it is at least that part of a rate."""
        now = self._clock.monotonic()
        for bucket in self._buckets.values():
            if isinstance(bucket, SharedRate) and (use := bucket.use(now, least)) is not None:
                yield use

    def waited(self, seconds: float) -> None:
        """A connection was throttled once, for that long: less than its debt if it was closed meanwhile."""
        self.throttles += 1
        self.throttled_seconds += seconds

    def _forget_clients(self) -> None:
        """Drop buckets of clients. Buckets of users stay: otherwise a user could drop its debt by using many
        client ids."""
        self._found.clear()
        for key in [key for key in self._buckets if key[1].client is not None]:
            del self._buckets[key]

    def _buckets_of(self, user: str, client: str, short: str) -> dict[Quota, _Rate]:
        found: dict[Quota, _Rate] = {}
        for quota in Quota:
            for entity in _most_exact_first(user, client):
                rate = self._quotas.get(entity, {}).get(quota)
                if rate is None:
                    continue
                # The default is a rate for each client, not a shared one.
                shared = Entity(
                    user if entity.user is not None else None, short if entity.client is not None else None
                )
                bucket = self._buckets.get((quota, shared))
                if bucket is None:
                    bucket = self._buckets[quota, shared] = self._bucket(quota, shared, rate)
                found[quota] = bucket
                break
        return found

    def _bucket(self, quota: Quota, entity: Entity, rate: float) -> _Rate:
        now, kind = self._clock.monotonic(), _KINDS.get(quota)
        if kind is None:
            return TokenBucket(rate / 100, now)
        return SharedRate(rate, now, self._cluster, kind, entity.key().decode())


def _read(key: bytes, value: bytes) -> tuple[Entity, dict[Quota, float]]:
    return Entity.from_key(key), {Quota(name): rate for name, rate in json.loads(value).items()}


def _digest(client: str) -> str:
    return hashlib.sha256(client.encode(errors="surrogatepass")).hexdigest()


def _most_exact_first(user: str, client: str) -> Iterator[Entity]:
    for who in (user, DEFAULT):
        yield Entity(who, client)
        yield Entity(who, DEFAULT)
        yield Entity(who)
    yield Entity(None, client)
    yield Entity(None, DEFAULT)
