"""Three brokers, PostgreSQL, an object store and clients, each on a host of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.postgres_pair import PostgresPair
from tests.s3 import S3Server
from tests.torture.cluster.arena import ClusterArena
from tests.torture.network.canary import Canary
from tests.torture.network.namespaces import Network, inside

DATABASE, STORE, CLIENTS = "database", "store", "clients"
BROKERS = ("a", "b", "c")
HOSTS = (DATABASE, STORE, *BROKERS, CLIENTS)


@dataclass(slots=True)
class NetworkArena(ClusterArena):
    network: Network = field(kw_only=True)
    pair: PostgresPair = field(kw_only=True)
    store: S3Server | None = field(kw_only=True)
    """None if objects are in a directory that all hosts have."""
    _canary: Canary = field(init=False)

    @property
    def hosts(self) -> list[str]:
        """Those that do something: nobody notices a fault of the store's host if it has no server."""
        return [each for each in self.network.hosts if each != STORE or self.store is not None]

    async def on(self, host: str, call: Callable[[], object]) -> None:
        """Call something that may block on this host."""
        await asyncio.to_thread(partial(_call_inside, self.network.namespace(host), call))

    async def prepare(self) -> None:
        await super(NetworkArena, self).prepare()
        self._canary = Canary(self.recorder, self.random)
        await self._canary.prepare(self.addresses(await self.holder()))

    async def check_visibility(self) -> None:
        """What one broker acknowledges is soon shown by all. Raises NotVisible."""
        alive = [self.addresses(name) for name, node in self.nodes.items() if node.is_alive]
        await self._canary.check(self.random.choice(alive), alive)


def _call_inside(namespace: str, call: Callable[[], object]) -> None:
    with inside(namespace):
        call()
