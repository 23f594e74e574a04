"""Brokers of one cluster inside the test, on one database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from posthouse.model.clock import SystemClock
from posthouse.node import Node
from posthouse.node_context import StorageSource
from posthouse.node_life import Role
from posthouse.service_url import ServiceUrl
from posthouse.settings import Settings
from posthouse.shared_storage import SharedStorages
from posthouse.storage.shared.membership.lease import LeaseTimes
from tests.served import on_any_port

TIMES = LeaseTimes(seconds=1.5, renewal_seconds=0.3, margin_seconds=0.5)
CALM = LeaseTimes()
"""For tests in which no broker loses its lease: with short ones it may, if the machine is very busy."""


def node_settings(url: str, name: str, **settings: Any) -> Settings:
    """Large objects are in a directory of the database. There is no audit log."""
    objects = Path(gettempdir()) / f"posthouse-objects-{url.rpartition('/')[2]}"
    objects.mkdir(exist_ok=True)
    return on_any_port(
        **{
            "database": ServiceUrl(url),
            "objects": ServiceUrl(f"file://{objects}"),
            "broker_name": name,
            "audit": None,
            **settings,
        }
    )


def node(
    url: str, name: str, storages: StorageSource | None = None, *, times: LeaseTimes = TIMES, **settings: Any
) -> Node:
    made = node_settings(url, name, **settings)
    shared = storages or SharedStorages(made, SystemClock())
    return Node(made, shared, times=times, patience_seconds=max(4.0, 2 * times.seconds))


@asynccontextmanager
async def nodes(
    url: str, *names: str, times: LeaseTimes = TIMES, **settings: Any
) -> AsyncIterator[list[Node]]:
    """The first is the coordinator."""
    async with AsyncExitStack() as stack:
        made = []
        for name in names:
            each = node(url, name, times=times, **settings)
            await each.start()
            stack.push_async_callback(each.stop)
            made.append(each)
        assert [each.role for each in made] == [Role.COORDINATOR, *[Role.MEMBER] * (len(names) - 1)]
        yield made


async def until(is_so: Callable[[], object], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.02)


async def is_closed(reader: asyncio.StreamReader) -> None:
    """Reads to the end, or until the connection is reset."""
    with contextlib.suppress(ConnectionError):
        while await asyncio.wait_for(reader.read(65536), 10):
            pass


def coordinates(each: Node) -> Callable[[], bool]:
    return lambda: each.role is Role.COORDINATOR
