"""Connections that say a little now and then, and never anything whole."""

import resource
import select
import socket
import struct
import time
from types import TracebackType
from typing import Self

_BEGIN = struct.pack(">i", 60_000)


def allow_files(count: int) -> None:
    """As many open files as the system lets this process have, if fewer are allowed now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


class SlowLoris:
    """A frame's length, and then a byte each time. Whoever is sent away comes back."""

    def __init__(self, address: tuple[str, int], count: int, begin: bytes = _BEGIN) -> None:
        allow_files(count + 1000)
        self._address = address
        self._begin = begin
        self._sockets: list[socket.socket | None] = [None] * count
        self.refused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets:
            if each is not None:
                each.close()

    @property
    def connected(self) -> int:
        self._drop_closed()
        return sum(each is not None for each in self._sockets)

    def connect_all(self) -> None:
        for number, each in enumerate(self._sockets):
            if each is None:
                self._sockets[number] = self._connect()

    def _connect(self) -> socket.socket | None:
        try:
            connected = socket.create_connection(self._address, timeout=5)
            connected.setblocking(False)
            connected.send(self._begin)
        except OSError:
            self.refused += 1
            return None
        return connected

    def drip(self) -> None:
        """One byte more on each."""
        for number, each in enumerate(self._sockets):
            if each is not None:
                try:
                    each.send(b"\0")
                except OSError:
                    each.close()
                    self._sockets[number] = None
                    self.refused += 1

    def is_gone_after(self, seconds: float) -> bool:
        """Whether the broker has closed all of them by then."""
        end = time.monotonic() + seconds
        while self.connected and time.monotonic() < end:
            time.sleep(0.2)
        return not self.connected

    def _drop_closed(self) -> None:
        poll = select.poll()
        by_file = {each.fileno(): number for number, each in enumerate(self._sockets) if each is not None}
        for file in by_file:
            poll.register(file, select.POLLIN)
        for file, _ in poll.poll(0):
            number = by_file[file]
            each = self._sockets[number]
            assert each is not None
            try:
                is_closed = not each.recv(4096)
            except BlockingIOError:
                is_closed = False
            except OSError:
                is_closed = True
            if is_closed:
                each.close()
                self._sockets[number] = None
