"""Brokers of a cluster as processes: how each of them is made."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from posthouse.cli.serve import Served
from posthouse.model.clock import Clock
from posthouse.node import Node
from posthouse.service_url import ServiceUrl
from posthouse.settings import Settings
from posthouse.storage.shared.lease import LeaseTimes
from posthouse.storage.shared.stores import SharedStores
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.torture.brokers import Recipe
from tests.torture.kinds.clock_jump import JumpingClock

TIMES = LeaseTimes(seconds=2.0, renewal_seconds=0.4, margin_seconds=0.6)
"""Shorter than usual, so that there are many takeovers in an hour."""
_NEVER_SECONDS = 3600.0
_FOR_EVER_MINUTES = 2**31 - 1
_CACHE_BYTES = 4 * 1024 * 1024
"""So small that most reads go to the database and the object store."""
_RATES = {Fault.FAIL: 0.1, Fault.FAIL_AFTER: 0.1, Fault.DELAY: 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecipe(Recipe):
    name: str
    database: str
    objects: Path
    object_faults: int | None = None
    """A seed; None for an object store without faults."""
    ahead: Path | None = None
    """The file that says by how much the clock is wrong."""

    def clock(self) -> Clock:
        return super(NodeRecipe, self).clock() if self.ahead is None else JumpingClock(self.ahead)

    def settings(self) -> Settings:
        return self.plain_settings(
            database=ServiceUrl(self.database),
            objects=ServiceUrl(f"file://{self.objects}"),
            broker_name=self.name,
            offsets_retention_minutes=_FOR_EVER_MINUTES,
        )

    async def served(self, clock: Clock) -> Served:
        settings = self.settings()
        stores = SharedStores(
            database=self.database,
            objects=f"file://{self.objects}",
            clock=clock,
            cache_bytes=_CACHE_BYTES,
            inline_bytes=settings.inline_bytes,
        )
        await stores.open()
        self.disturb(stores)
        return Node(
            settings,
            lambda lease: stores.storage(lease, defaults=settings.topic_defaults()),
            clock=clock,
            times=TIMES,
        )

    def disturb(self, stores: SharedStores) -> None:
        """Faults inside of the process. Recipes of controls break promises here."""
        if self.object_faults is not None:
            random = Random(self.object_faults)
            stores.objects = FaultyObjectStore(stores.objects, random=random, rates=_RATES)  # type: ignore[assignment]
