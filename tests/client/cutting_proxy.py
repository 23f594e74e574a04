"""A proxy that cuts connections at chosen requests, before the broker hears them or before it is heard."""

import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

_HEAD = struct.Struct(">ih")


class Cut(Enum):
    NONE = "pass it on"
    BEFORE = "the broker does not hear of it"
    AFTER = "the broker answers, and nobody hears"


class CuttingProxy:
    """`cut` is asked for every request, by its API key and how many of them there were before."""

    def __init__(self, broker: str, cut: Callable[[int, int], Cut]) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        self._cut = cut
        self._seen: dict[int, int] = {}
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listening]
        self.cuts = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._sockets:
            _close(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._broker)
            self._sockets += [client, upstream]
            threading.Thread(target=self._serve, args=(client, upstream), daemon=True).start()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        """One request after the other: the order of answers is that of requests."""
        try:
            while True:
                frame = _read_frame(client)
                cut = self._decide(_HEAD.unpack_from(frame)[1])
                if cut is not Cut.BEFORE:
                    upstream.sendall(frame)
                    answer = _read_frame(upstream)
                if cut is not Cut.NONE:
                    self.cuts += 1
                    return
                client.sendall(answer)
        except (OSError, EOFError):
            return
        finally:
            _close(client)
            _close(upstream)

    def _decide(self, key: int) -> Cut:
        with self._lock:
            number = self._seen.get(key, 0)
            self._seen[key] = number + 1
            return self._cut(key, number)


def _read_frame(connected: socket.socket) -> bytes:
    head = _read(connected, 4)
    return head + _read(connected, int.from_bytes(head, "big"))


def _read(connected: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = connected.recv(size - len(data))
        if not got:
            raise EOFError
        data += got
    return data


def _close(connected: socket.socket) -> None:
    # Wakes up whoever is blocked in it, which close alone does not.
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        connected.close()
