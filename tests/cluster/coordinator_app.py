"""The app of a coordinator whose lease is what a test says, without a database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from posthouse.app import App
from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import SystemClock
from posthouse.protocols.membership import Membership
from posthouse.storage.memory.engine import MemoryStorage
from tests.served import on_any_port


@dataclass(slots=True)
class SetLease:
    """A test sets what the broker knows of it."""

    is_valid: bool = True
    is_cut_off: bool = False
    epoch: int = 1
    seconds_left: float = 1.0

    def cut_off(self) -> None:
        self.is_valid = False
        self.is_cut_off = True


_OWN = ClusterBroker(
    id=1, name="a", incarnation=uuid4(), addresses={"kafka": Address("127.0.0.1", 1)}, version="1"
)
_OTHER = replace(_OWN, id=2, name="b", incarnation=uuid4())
_ALONE = ClusterView(brokers=(_OWN,))
WITH_ANOTHER = ClusterView(brokers=(_OWN, _OTHER))


@asynccontextmanager
async def coordinator_app(view: ClusterView = _ALONE, **settings: Any) -> AsyncIterator[tuple[App, SetLease]]:
    lease = SetLease()
    membership = Membership(own=_OWN, coordinating=lambda: lease, view=lambda: view)
    app = App(
        on_any_port(memory=True, **settings), storage=MemoryStorage(SystemClock()), membership=membership
    )
    await app.start()
    try:
        yield app, lease
    finally:
        await app.stop(at_once=True)
