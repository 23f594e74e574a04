"""Scopes of groups and transactional ids that a test moves from broker to broker."""

import asyncio
from collections.abc import Sequence

import pytest

from posthouse import node_scopes
from posthouse.model.scopes import GROUPS, TRANSACTIONS, Scope, scope_of_group
from posthouse.node import Node
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.cluster_control import DatabaseControl
from tests.cluster.nodes import until


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes move without pauses."""
    monkeypatch.setattr(node_scopes, "HANDOVER_SECONDS", 0.0)
    monkeypatch.setattr(node_scopes, "SETTLED_SECONDS", 0.0)


def holds(node: Node, scope: Scope) -> bool:
    app = node.parts.life.app
    return app is not None and app.broker.holds(scope)


async def know_holders(made: Sequence[Node]) -> None:
    """All scopes are held, and all brokers know by which."""
    await until(
        lambda: all(
            len(each.view.brokers) == len(made)
            and all(each.view.holder_of(scope) for scope in (*GROUPS, *TRANSACTIONS))
            for each in made
        ),
        seconds=60,
    )


async def move(url: str, group: str, to: Node) -> None:
    """Returns when that broker serves the group."""
    await move_scope(url, scope_of_group(group), to)


async def move_scope(url: str, scope: Scope, to: Node) -> None:
    """Returns when that broker serves it."""
    await DatabaseControl(Database(url)).want(scope, to.parts.place.name)
    await until(lambda: holds(to, scope), seconds=60)


async def moving(url: str, group: str, made: Sequence[Node], times: int) -> None:
    """Let the group go round, with time to work in between."""
    for number in range(times):
        await move(url, group, made[number % len(made)])
        await asyncio.sleep(1.5)
