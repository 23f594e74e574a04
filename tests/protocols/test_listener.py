"""A listener whose system has nothing left to give: it waits, and goes on."""

import asyncio
import errno
import socket
from typing import Any

import pytest

from posthouse.protocols import listener as listener_module
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

SECONDS = 60


class Accepting:
    """Fails with an error for some time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._accept = socket.socket.accept
        self.error: OSError | None = None
        self.failures = 0
        monkeypatch.setattr(socket.socket, "accept", self._replaced())

    def _replaced(self) -> Any:
        def accept(listening: socket.socket) -> Any:
            if self.error is not None:
                self.failures += 1
                raise self.error
            return self._accept(listening)

        return accept


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPROTO, errno.EPERM])
async def test_errors_of_accept_neither_spin_the_loop_nor_end_the_listener(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    monkeypatch.setattr(listener_module, "_REST_SECONDS", 0.05)
    accepting = Accepting(monkeypatch)
    async with AsyncBroker() as broker, asyncio.timeout(SECONDS):
        accepting.error = OSError(number, "of a kind")
        async with Wire(broker.kafka) as wire:  # the system's queue has it
            begun = asyncio.get_running_loop().time()
            while accepting.failures < 3:
                await asyncio.sleep(0.01)
            waited = asyncio.get_running_loop().time() - begun
            assert accepting.failures <= waited / 0.05 + 2
            accepting.error = None
            await wire.create_topic("t")
    assert caplog.text.count("cannot accept connections, retrying: of a kind") == 1


async def test_whoever_has_shown_nothing_gives_its_descriptor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    accepting = Accepting(monkeypatch)
    async with (
        AsyncBroker() as broker,
        asyncio.timeout(SECONDS),
        Wire(broker.kafka) as useful,
        Wire(broker.kafka) as silent,
    ):
        await useful.create_topic("t")
        while len(broker.app.connections) < 2:
            await asyncio.sleep(0.01)
        accepting.error = OSError(errno.EMFILE, "of descriptors")
        async with Wire(broker.kafka):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await silent.receive_frame()
            accepting.error = None
        await useful.create_topic("u")
