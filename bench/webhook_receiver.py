"""An HTTP server that does next to nothing: it counts POSTs by path, and answers at once, or never.

`GET /counts` answers with the counts and, for each path, when the last one came. A path that begins with
/hang is never answered. Prints its port.
"""

import asyncio
import json
import sys
import time
from typing import Final

_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_LENGTH: Final = b"content-length: "

counts: dict[str, int] = {}
last: dict[str, float] = {}


class Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end]
            at = head.lower().find(_LENGTH)
            size = 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
            if len(self._data) < end + 4 + size:
                return
            self._data = self._data[end + 4 + size :]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        assert self._transport is not None
        path = head.split(b" ", 2)[1].decode()
        if head.startswith(b"GET"):
            body = json.dumps({"counts": counts, "last": last}).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            return
        counts[path] = counts.get(path, 0) + 1
        last[path] = time.time()
        if not path.startswith("/hang"):
            self._transport.write(_ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
