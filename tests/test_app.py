"""The composition root: what starts, what is told when it cannot, and what is left when it stops."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from posthouse.app import App
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.routing.definitions import Binding
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidConfig, StorageClosed
from posthouse.protocols.front_end import FrontEnd
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.kafka.front_end import KAFKA_FRONT_END
from posthouse.settings import Address, Authentication, Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.testing import AsyncBroker
from tests.served import on_any_port


async def test_start_and_stop() -> None:
    app = App(on_any_port(memory=True))
    await app.start()
    address = app.listeners["kafka"]
    assert address.host == "127.0.0.1"
    _, writer = await asyncio.open_connection(address.host, address.port)
    await app.stop()
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(address.host, address.port)


async def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        storage = MemoryStorage(ManualClock())
        app = App(on_any_port(memory=True, kafka=Address("127.0.0.1", port)), storage=storage)
        with pytest.raises(InvalidConfig, match=f"port {port} of 127.0.0.1 is in use"):
            await app.start()
        with pytest.raises(StorageClosed):
            await storage.create_topics([])


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (Address("192.0.2.1", 0), "this machine has no address 192.0.2.1"),
        (Address("no-such-host.invalid", 0), "there is no host 'no-such-host.invalid'"),
    ],
)
async def test_an_address_that_is_not_here(address: Address, sentence: str) -> None:
    app = App(on_any_port(memory=True, kafka=address, allow_open_network=True))
    with pytest.raises(InvalidConfig, match=sentence):
        await app.start()


def test_settings_are_checked_first() -> None:
    with pytest.raises(InvalidConfig, match="refusing to listen"):
        App(Settings(memory=True, kafka=Address("0.0.0.0", 0)))


async def test_storage_and_clock_can_be_passed_in() -> None:
    clock = ManualClock()
    storage = MemoryStorage(clock)
    app = App(on_any_port(), clock=clock, storage=storage)
    await app.start()
    assert app.broker.cluster_id == storage.cluster_id
    await app.stop()


async def test_the_data_directory_is_used(tmp_path: Path) -> None:
    settings = on_any_port(data=tmp_path / "data")
    first = App(settings)
    await first.start()
    cluster_id = first.broker.cluster_id
    await first.stop()
    second = App(settings)
    await second.start()
    assert second.broker.cluster_id == cluster_id
    await second.stop()


async def test_a_broker_that_nobody_could_log_in_to_does_not_start(tmp_path: Path) -> None:
    """And lets go of its data: the next one may have it."""
    with pytest.raises(InvalidConfig, match="admin-password-file"):
        async with AsyncBroker(data=tmp_path, authentication=Authentication.REQUIRED):
            pass
    async with AsyncBroker(data=tmp_path):
        pass


async def test_bindings_survive_a_start_without_the_front_end_that_made_them(tmp_path: Path) -> None:
    async def bindings(front_ends: Sequence[FrontEnd], *, bind: bool = False) -> int:
        app = App(on_any_port(data=tmp_path, amqp=None, admin=None), front_ends=front_ends)
        await app.start()
        namespace = app.broker.namespaces.get("/")
        if bind:
            await namespace.declare_queue(QueueDefinition(name="q"), object())
            await namespace.bind(Binding(source="amq.topic", destination="q", key=b"a"))
        found = [each for each in namespace.router.bindings(destination="q") if each.source]
        await app.stop()
        return len(found)

    assert await bindings(FRONT_ENDS, bind=True) == 1
    assert await bindings([KAFKA_FRONT_END]) == 1
    assert await bindings(FRONT_ENDS) == 1
