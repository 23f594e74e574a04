"""A directory of objects behind HTTP, with signed addresses that expire, and faults."""

import re
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass(slots=True)
class ObjectServer:
    directory: Path
    port: int = 0
    generation: int = 0
    """Addresses that were signed in an earlier one have expired."""
    statuses: list[int] = field(default_factory=list)
    """The next answers."""
    flips: set[str] = field(default_factory=set)
    """Keys of objects whose bytes come damaged: '*' for all."""
    is_cutting: bool = False
    """Answers end after half of their bytes."""
    is_ignoring_ranges: bool = False
    is_hanging_up: bool = False
    """Connections end after each answer."""
    scheme: str = "http"
    connections: int = 0
    gets: list[tuple[str, int, int]] = field(default_factory=list)
    """Key, first and last byte of what was answered."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    async def sign(self, keys: Sequence[str], seconds: float) -> list[str]:
        return [self.address(key) for key in keys]

    def address(self, key: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/{key}?generation={self.generation}"

    def status(self, query: str) -> int:
        with self.lock:
            if self.statuses:
                return self.statuses.pop(0)
        return 206 if query == f"generation={self.generation}" else 403

    @property
    def bytes_sent(self) -> int:
        return sum(last - first + 1 for _, first, last in self.gets)


@contextmanager
def object_server(directory: Path, tls: ssl.SSLContext | None = None) -> Iterator[ObjectServer]:
    served = ObjectServer(directory)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            served.connections += 1
            super().setup()

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            key = parts.path.lstrip("/")
            status = served.status(parts.query)
            file = served.directory / key
            if status == 206 and not file.exists():
                status = 404
            if status != 206:
                self._answer(status, b"<Error/>", {})
                return
            whole = bytearray(file.read_bytes())
            match = _RANGE.fullmatch(self.headers["Range"])
            assert match is not None
            first, last = int(match[1]), min(int(match[2]), len(whole) - 1)
            if first >= len(whole):
                self._answer(416, b"", {})
                return
            if served.flips & {key, "*"}:
                whole[first + (last - first) // 2] ^= 1
            served.gets.append((key, first, last))
            if served.is_ignoring_ranges:
                self._answer(200, whole, {})
                return
            self._answer(
                206, whole[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(whole)}"}
            )

        def _answer(self, status: int, body: bytes | bytearray, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if served.is_cutting and status == 206:
                body = body[: len(body) // 2]
                self.close_connection = True
            self.wfile.write(body)
            self.close_connection = self.close_connection or served.is_hanging_up

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the screen."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        served.scheme = "https"
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
