"""The storage of a node, made anew each time it has taken the lease."""

from collections.abc import Callable

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.shared.lease import Lease


def storage_maker(settings: Settings) -> Callable[[Lease], Storage]:
    def make(lease: Lease) -> Storage:
        raise InvalidConfig(f"this release cannot store in {settings.database} yet")

    return make
