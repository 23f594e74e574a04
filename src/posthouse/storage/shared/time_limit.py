"""A limit on the time that a statement may take, also while the server does not answer at all.

Cancelling a task that waits for PostgreSQL asks the server to cancel the statement, and waits for its answer.
A server that is stopped never answers, and TCP does not notice it, because the system still acknowledges the
bytes. So the connection is cut, and the statement fails like any other whose connection broke.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from posthouse.storage.shared.database import DatabaseConnection

T = TypeVar("T")


def cut(connection: DatabaseConnection) -> None:
    """Break the connection: a statement in flight fails at once. Whether it counts is not known."""
    if connection.closed:
        return
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as broken:
        broken.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def time_limit(connection: DatabaseConnection, seconds: float) -> Iterator[None]:
    """Cut the connection if the block takes longer."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def stall_limit(connection: DatabaseConnection, seconds: float) -> Iterator[Callable[[], None]]:
    """Cut the connection if the block takes longer without calling what it is given."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, cut, connection)

    def moved() -> None:
        nonlocal timer
        timer.cancel()
        timer = loop.call_later(seconds, cut, connection)

    try:
        yield moved
    finally:
        timer.cancel()


async def cut_if_cancelled(connection: DatabaseConnection, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which uses the connection. If the caller is cancelled, it is cut."""
    working = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        cut(connection)
        await asyncio.gather(working, return_exceptions=True)  # it fails, because its connection is broken
        raise
