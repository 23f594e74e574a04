"""Where no server has the objects, no fault strikes the store: it would count, and nobody would notice it."""

import asyncio
from random import Random
from typing import Any, cast

import pytest

from posthouse.model.scopes import COORDINATOR, Scope
from tests.postgres_pair import PostgresPair
from tests.s3 import S3Server
from tests.torture.brokers import Recipe
from tests.torture.network.arena import HOSTS, STORE, NetworkArena
from tests.torture.network.catalogue import kind
from tests.torture.network.faults import (
    CutLink,
    IsolatedBroker,
    KilledBroker,
    NetworkFault,
    SlowLink,
    StoreAway,
)
from tests.torture.network.namespaces import Network
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

_MANY = 200


class _Links(Network):
    """Notes which hosts were struck."""

    def __init__(self) -> None:
        super().__init__(HOSTS)
        self.struck: set[str] = set()

    def cut(self, source: str, target: str) -> None:
        self.struck |= {source, target}

    def slow_down(self, host: str, *, kbit: int, delay_ms: int) -> None:
        self.struck.add(host)

    def heal(self) -> None:
        """No-op."""


class _Arena(NetworkArena):
    async def holder(self, scope: Scope = COORDINATOR) -> str:
        return "a"

    async def standby(self) -> str:
        return "b"


def _arena(store: S3Server | None) -> tuple[_Arena, _Links]:
    links = _Links()
    nothing = cast("Any", None)
    arena = _Arena(
        recipe=cast("Recipe", nothing),
        workload=cast("Workload", nothing),
        recorder=Recorder(),
        random=Random(1),
        network=links,
        pair=cast("PostgresPair", nothing),
        store=store,
    )
    return arena, links


@pytest.mark.parametrize("fault", [CutLink(), CutLink(one_way=True), IsolatedBroker(), SlowLink()])
async def test_links_of_the_store_are_struck_if_it_has_a_server(
    fault: NetworkFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_seconds: float) -> None:
        """No-op."""

    monkeypatch.setattr(asyncio, "sleep", at_once)
    for store in (cast("S3Server", object()), None):
        arena, links = _arena(store)
        for _ in range(_MANY):
            await fault.strike(arena)
        assert (STORE in links.struck) == (store is not None)
        assert {"a", "b", "database"} <= links.struck


def test_faults_of_the_store_itself_are_not_drawn() -> None:
    mixed = kind("mixed", KilledBroker(), StoreAway())
    assert [each.name for each in mixed.possible(_arena(None)[0])] == ["kill"]
    assert [each.name for each in mixed.possible(_arena(cast("S3Server", object()))[0])] == [
        "kill",
        "object store",
    ]
