"""Connections between brokers and PostgreSQL that break within a statement, or cannot be made for a while."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.postgres import free_port
from tests.storage.shared.postgres_proxy import (
    AFTER_COMMIT,
    Damage,
    Direction,
    PostgresProxy,
    ProxyFault,
)
from tests.torture.cluster.arena import ClusterArena
from tests.torture.cluster.kind import DATABASE, NAMES, Change, ClusterKind, unchanged
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

_REFUSED_SECONDS = (0.05, 0.3, 1.0)
_FAULTS = 6
_MESSAGES = 40
_AFTERWARDS = 40


class DatabaseCut(ClusterKind):
    """Each broker has a proxy of its own before PostgreSQL."""

    name = "cluster-database-cut"

    def __init__(self, change: Change = unchanged, *, after_commits: bool = False) -> None:
        """With `after_commits`, all faults strike between a commit and its answer, at every broker."""
        super().__init__(change)
        self._after_commits = after_commits
        self._proxies: dict[str, PostgresProxy] = {}
        self._servers: list[asyncio.Server] = []

    def open(self, place: Path) -> None:
        super().open(place)
        self._proxies = {name: PostgresProxy(self.pair.primary.port) for name in NAMES}
        for proxy in self._proxies.values():
            proxy.port = free_port()

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        plain = super().node_recipe(place, name, random)
        url = self.pair.url(DATABASE, self._proxies[name].port)
        return replace(plain, database=f"{url}&sslmode=disable&gssencmode=disable")

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> ClusterArena:
        arena = super().arena(place, workload, recorder, random)
        arena.begin = self._serve
        return arena

    async def _serve(self) -> None:
        for proxy in self._proxies.values():
            self._servers.append(await asyncio.start_server(proxy.serve, "127.0.0.1", proxy.port))

    def close(self) -> None:
        for server in self._servers:
            server.close()
        super().close()

    async def strike(self, arena: ClusterArena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        proxy = self._proxies[await arena.holder()]
        if self._after_commits:
            arena.recorder.fault("lost answers")
            for each in self._proxies.values():
                each.arm(*(AFTER_COMMIT for _ in range(_FAULTS)))
        elif arena.random.random() < 0.7:
            arena.recorder.fault("broken statements")
            proxy.arm(*(_fault(arena.random) for _ in range(_FAULTS)))
        else:
            arena.recorder.fault("refused connections")
            proxy.refuse()
            await asyncio.sleep(arena.random.choice(_REFUSED_SECONDS))
            proxy.accept()
        await arena.progress(_AFTERWARDS)


def _fault(random: Random) -> ProxyFault:
    if random.random() < 0.3:
        return AFTER_COMMIT
    return ProxyFault(
        direction=random.choice(list(Direction)),
        message=random.randrange(_MESSAGES),
        damage=random.choice((Damage.CUT, Damage.CUT_WITHIN, Damage.DELAY)),
        seconds=0.05,
    )
