"""Brokers on several hosts that break their promises, for negative controls."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import psycopg

from posthouse.storage.log_news import LogNews
from posthouse.storage.shared.logs.follower import Follower
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.stores import SharedStores
from tests.torture.cluster.breaking import (
    BOTH_WRITE,
    StubbornRecipe,
    changed_to,
    cling_once_prepared,
    clinging,
    remove_check_of_the_lease,
)
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.network.arena import NetworkArena
from tests.torture.network.faults import KilledBroker, MovedScopes, PausedBroker
from tests.torture.network.kind import NetworkKind
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

_PAUSES = (3.5,)


class Unfenced(NetworkKind):
    """A broker that was paused does not learn that it has lost its lease, and the database does not check."""

    def __init__(self) -> None:
        pause = PausedBroker(_PAUSES, of_holder=1.0, afterwards=BOTH_WRITE)
        super().__init__("unfenced", [pause], changed_to(StubbornRecipe))

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> NetworkArena:
        arena = super().arena(place, workload, recorder, random)
        arena.began = partial(remove_check_of_the_lease, arena)
        arena.is_pinned = True  # so that each coordinator has clients
        return arena


class Clinging(NetworkKind):
    """A broker serves queues of scopes that it has given away, and the database does not check."""

    def __init__(self) -> None:
        move = MovedScopes(drains=0.0, kills=0.0, afterwards=BOTH_WRITE)
        super().__init__("clinging", [move])

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        return clinging(super().node_recipe(place, name, random), place)

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> NetworkArena:
        arena = super().arena(place, workload, recorder, random)
        cling_once_prepared(arena, place)
        return arena


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindRecipe(NodeRecipe):
    """Never asks the database what other brokers have written, and takes no hints."""

    def disturb(self, stores: SharedStores) -> None:
        Follower._look = _not_looked  # type: ignore[method-assign, assignment]
        Follower.hinted = _not_taken  # type: ignore[method-assign, assignment]


async def _not_looked(follower: Follower, logs: dict[int, SharedLog]) -> None:
    """No-op."""


def _not_taken(follower: Follower, news: Sequence[LogNews]) -> None:
    """No-op."""


_FORGET = """
CREATE FUNCTION posthouse.forget_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF {is_of_clients} THEN
        NEW.namespaces := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER forget BEFORE INSERT OR UPDATE ON posthouse.{table}
FOR EACH ROW EXECUTE FUNCTION posthouse.forget_{table}()
"""


class Uncoordinated(NetworkKind):
    """The database does not refuse what brokers append to logs that feed queues of others."""

    def __init__(self) -> None:
        super().__init__("uncoordinated", [KilledBroker()])

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> NetworkArena:
        arena = super().arena(place, workload, recorder, random)
        arena.began = partial(_forget_who_serves, arena.database)
        return arena


async def _forget_who_serves(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        # Not of the reference logs of queues, which have names that no client can give: they would be lost.
        for table, is_of_clients in (
            ("topic", "NEW.name NOT LIKE ':%'"),
            ("log", "EXISTS (SELECT FROM posthouse.topic WHERE id = NEW.topic AND name NOT LIKE ':%')"),
        ):
            await connection.execute(_FORGET.format(table=table, is_of_clients=is_of_clients).encode())
