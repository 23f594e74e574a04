"""The floor: a server that copies frames from a socket to a file, syncs, and acknowledges. Nothing else.

What it reaches is what Python, this machine and its disk allow any broker that keeps its promises. It does
what Posthouse does where that matters for speed: one thread writes and syncs while the event loop reads,
and one sync serves all frames that arrived meanwhile.

Frames as in Kafka: a length of four bytes, then so many bytes. The answer to each is an empty frame.
"""

import asyncio
import os
import queue
import sys
import threading
from typing import cast

import uvloop

EMPTY_FRAME = bytes(4)
_Pending = list[tuple["Connection", bytearray]]


class Writer:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._queue: queue.SimpleQueue[tuple[Connection, bytearray]] = queue.SimpleQueue()
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def write(self, connection: "Connection", frame: bytearray) -> None:
        self._queue.put((connection, frame))

    def _run(self) -> None:
        while True:
            group = [self._queue.get()]
            while not self._queue.empty() and len(group) < 1000:
                group.append(self._queue.get())
            os.writev(self._file, [frame for _, frame in group])
            os.fdatasync(self._file)
            self.loop.call_soon_threadsafe(self._acknowledge, group)

    def _acknowledge(self, group: _Pending) -> None:
        for connection, _ in group:
            connection.transport.write(EMPTY_FRAME)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._length = bytearray(4)
        self._frame: bytearray | None = None
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._length if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        if self._frame is None:
            if self._filled == 4:
                self._frame = bytearray(int.from_bytes(self._length, "big"))
                self._filled = 0
        elif self._filled == len(self._frame):
            self._writer.write(self, self._frame)
            self._frame = None
            self._filled = 0


async def main(path: str) -> None:
    sys.setswitchinterval(0.0005)
    loop = asyncio.get_running_loop()
    writer = Writer(path)
    server = await loop.create_server(lambda: Connection(writer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
