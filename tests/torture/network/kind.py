"""What all faults of a network have in common: its hosts, what runs on them, and a round."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from random import Random

from tests.directories import IN_MEMORY
from tests.postgres import free_port
from tests.postgres_pair import running_pair
from tests.s3 import S3Server, s3_program
from tests.torture.cluster.arena import LAST
from tests.torture.cluster.kind import DATABASE as DATABASE_NAME
from tests.torture.cluster.kind import Change, ClusterKind, unchanged
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.kinds.clock_jump import make_exact
from tests.torture.network.arena import BROKERS, CLIENTS, DATABASE, HOSTS, STORE, NetworkArena
from tests.torture.network.faults import AFTERWARDS, NetworkFault
from tests.torture.network.namespaces import Network, inside
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

_LAST_HOST = BROKERS[0]


class NetworkKind(ClusterKind):
    """In each round one of its faults, and then whether all brokers show the same."""

    def __init__(
        self,
        name: str,
        faults: Sequence[NetworkFault],
        change: Change = unchanged,
        *,
        has_lying_store: bool = False,
    ) -> None:
        """With a lying store some uploads are slow, fail, or succeed and are answered with an error."""
        super().__init__(change)
        self.name = name
        self._faults = faults
        self._has_lying_store = has_lying_store
        self._network = Network(HOSTS)
        self._store: S3Server | None = None

    def open(self, place: Path) -> None:
        # Brokers are forked from a server that is not on any of these hosts.
        ensure_running()
        try:
            self._open(place)
        except BaseException:
            self.close()
            raise

    def _open(self, place: Path) -> None:
        self._stack.callback(self._network.close)
        self._network.open()
        self._stack.enter_context(inside(self._network.namespace(CLIENTS)))
        with inside(self._network.namespace(DATABASE)):
            self.pair = self._stack.enter_context(
                running_pair(DATABASE_NAME, self._network.address(DATABASE))
            )
        if s3_program() is None:
            (place / "objects").mkdir()
        else:
            with inside(self._network.namespace(STORE)):
                self._store = self._stack.enter_context(_running_store(self._network.address(STORE)))
        for name in (*BROKERS, LAST):
            make_exact(_ahead(place, name))

    def plain_recipe(self, place: Path) -> NodeRecipe:
        plain = super().plain_recipe(place)
        if self._store is not None:
            plain = replace(plain, objects=self._store.url())
        return self._placed(plain, _LAST_HOST)

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        return replace(
            self._placed(super().node_recipe(place, name, random), name),
            ahead=_ahead(place, name),
            object_faults=random.getrandbits(32) if self._has_lying_store else None,
        )

    def _placed(self, recipe: NodeRecipe, host: str) -> NodeRecipe:
        return replace(recipe, host=self._network.address(host), namespace=self._network.namespace(host))

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> NetworkArena:
        return NetworkArena(
            recipe=self.plain_recipe(place),
            workload=workload,
            recorder=recorder,
            random=random,
            refusals_are_expected=True,
            recipes={name: self._change(self.node_recipe(place, name, random)) for name in BROKERS},
            database=self.pair.url(DATABASE_NAME),
            choices=Random(random.random()),
            is_pinned=random.random() < 0.5,
            network=self._network,
            pair=self.pair,
            store=self._store,
        )

    @property
    def store(self) -> str:
        return super().store if s3_program() is None else "S3 server"

    async def strike(self, arena: NetworkArena) -> None:  # type: ignore[override]
        await arena.ensure_running()
        await arena.some_progress()
        await arena.random.choice(self.possible(arena)).strike(arena)
        await arena.progress(AFTERWARDS)
        await arena.check_visibility()

    def possible(self, arena: NetworkArena) -> Sequence[NetworkFault]:
        """Those of its faults that strike something."""
        return [each for each in self._faults if arena.store is not None or not each.needs_store]


def _ahead(place: Path, name: str) -> Path:
    return place / f"ahead-{name}"


@contextmanager
def _running_store(host: str) -> Iterator[S3Server]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-s3-") as place:
        server = S3Server(Path(place), free_port(), host)
        server.start()
        try:
            yield server
        finally:
            if server.process is not None:
                server.kill()
