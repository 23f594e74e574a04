"""The storages of a node: one each time it has taken the lease."""

from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidConfig
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.shared.lease import Lease


class SharedStorages:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._place = settings.database

    async def open(self) -> None:
        raise InvalidConfig(f"this release cannot store in {self._place} yet")

    def make(self, lease: Lease) -> Storage:
        raise NotImplementedError

    async def close(self) -> None:
        return
