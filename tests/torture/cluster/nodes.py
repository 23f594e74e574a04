"""Brokers of a cluster as processes: how each of them is made."""

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from posthouse import node_scopes
from posthouse.cli.serve import Served
from posthouse.model.clock import Clock
from posthouse.node import Node
from posthouse.service_url import ServiceUrl
from posthouse.settings import Address, Settings
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.garbage import GarbageSettings
from posthouse.storage.shared.housekeeping.slots import SlotSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes
from posthouse.storage.shared.stores import SharedStores
from tests.postgres import LOOPBACK
from tests.s3 import S3_CREDENTIALS
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.torture.brokers import Recipe
from tests.torture.kinds.clock_jump import JumpingClock
from tests.torture.network.namespaces import enter

TIMES = LeaseTimes(seconds=2.0, renewal_seconds=0.4, margin_seconds=0.6)
"""Shorter than usual, so that there are many takeovers in an hour."""
_SETTLED_SECONDS = 0.5
_HANDOVER_SECONDS = 0.05
"""Shorter than usual, so that a broker that comes back gets scopes of others in the same round."""
_FOR_EVER_MINUTES = 2**31 - 1
_CACHE_BYTES = 1024 * 1024
_TAIL_BYTES = 64 * 1024
"""So small that many reads go to the database and the object store."""
_PORTS = {"kafka": 9092, "amqp": 5672, "admin": 15672, "peer": 9192}
_RATES = {Fault.FAIL: 0.1, Fault.FAIL_AFTER: 0.1, Fault.DELAY: 0.2}


_UPKEEP = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=16 * 1024, due_ms=500, mixed_bytes=256 * 1024),
    slots=SlotSettings(open_seconds=1.0),
    garbage=GarbageSettings(grace_seconds=10.0),
    producer_expiry_ms=_FOR_EVER_MINUTES * 60_000,
    consolidation_seconds=0.3,
    slot_seconds=0.5,
    removal_seconds=1.0,
    garbage_seconds=1.0,
)
"""All housekeeping is so frequent that faults strike it, too."""


class BusyStorages:
    """Storages with little memory and much housekeeping."""

    def __init__(self, stores: SharedStores, clock: Clock, settings: Settings) -> None:
        self._stores = stores
        self._clock = clock
        self._settings = settings

    async def open(self) -> None:
        await self._stores.open()

    def make(self, lease: Lease) -> SharedStorage:
        return SharedStorage(
            self._stores.database,
            self._stores.objects,
            self._stores.blocks,
            lease,
            clock=self._clock,
            defaults=self._settings.topic_defaults(),
            tail_bytes=_TAIL_BYTES,
            cache_bytes=_CACHE_BYTES,
            upkeep=_UPKEEP,
            last_commits=self._stores.last_commits,
        )

    async def close(self) -> None:
        await self._stores.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecipe(Recipe):
    name: str
    database: str
    objects: str
    """The address of the object store."""
    host: str = LOOPBACK
    """Where the broker listens: on fixed ports, unless other brokers are on the same host."""
    namespace: str | None = None
    """The network namespace of the host; None for that of this machine."""
    object_faults: int | None = None
    """A seed; None for an object store without faults."""
    ahead: Path | None = None
    """The file that says by how much the clock is wrong."""

    def clock(self) -> Clock:
        return super(NodeRecipe, self).clock() if self.ahead is None else JumpingClock(self.ahead)

    def settings(self) -> Settings:
        return self.plain_settings(
            rocketmq=None,
            rocketmq_grpc=None,
            database=ServiceUrl(self.database),
            objects=ServiceUrl(self.objects),
            broker_name=self.name,
            offsets_retention_minutes=_FOR_EVER_MINUTES,
            **self._listeners(),
        )

    def _listeners(self) -> dict[str, Any]:
        if self.host == LOOPBACK:
            return {}
        addresses = {name: Address(self.host, port) for name, port in _PORTS.items()}
        return {**addresses, "allow_open_network": True}

    async def served(self, clock: Clock) -> Served:
        if self.namespace is not None:
            enter(self.namespace)
        os.environ.update(S3_CREDENTIALS)
        settings = self.settings()
        stores = SharedStores(
            database=self.database,
            objects=self.objects,
            clock=clock,
            cache_bytes=_CACHE_BYTES,
            inline_bytes=settings.inline_bytes,
        )
        node_scopes.SETTLED_SECONDS = _SETTLED_SECONDS
        node_scopes.HANDOVER_SECONDS = _HANDOVER_SECONDS
        self.disturb(stores)
        return Node(settings, BusyStorages(stores, clock, settings), clock=clock, times=TIMES)

    def disturb(self, stores: SharedStores) -> None:
        """Faults inside of the process. Recipes of controls break promises here."""
        if self.object_faults is not None:
            random = Random(self.object_faults)
            stores.objects = FaultyObjectStore(stores.objects, random=random, rates=_RATES)  # type: ignore[assignment]
