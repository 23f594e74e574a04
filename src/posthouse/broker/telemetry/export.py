"""Export of clients' metrics as lines of JSON in a file.

A thread writes. A file that has reached its maximum size is renamed to `<name>.1`, which replaces the
previous one, and a new file begins. If the disk is slower than the clients, lines are dropped and counted.
"""

import json
import logging
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posthouse.broker.telemetry.points import MetricPoint, PushedMetrics
from posthouse.broker.telemetry.subscriptions import ClientIdentity
from posthouse.model.errors import InvalidConfig

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024 * 1024
_MOST_WAITING_BYTES = 16 * 1024 * 1024
_IDENTITY_BYTES = 1000
"""Estimated bytes of the client's names in a waiting push."""
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class MetricsFile:
    """The event loop calls `write`; the thread owns the file."""

    def __init__(
        self,
        path: Path | None,
        most_bytes: int = MOST_BYTES,
        most_waiting_bytes: int = _MOST_WAITING_BYTES,
    ) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._most_waiting_bytes = most_waiting_bytes
        self._lock = threading.Lock()
        self._waiting: list[tuple[ClientIdentity, PushedMetrics]] = []
        self._waiting_bytes = 0
        """Bytes of all pushes that are not in the file yet, including those being written."""
        self._dropped = 0
        self._wake = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, _FLAGS, 0o600))
        except OSError as error:
            raise InvalidConfig(
                f"the file of clients' metrics {self._path} cannot be written: {error.strerror}; "
                "set client_metrics=FILE or client_metrics=off"
            ) from None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="client metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._is_over = True
            self._wake.set()
            self._thread.join()
            self._thread = None

    def write(self, client: ClientIdentity, pushed: PushedMetrics) -> None:
        if self._thread is None:
            return
        with self._lock:
            size = _IDENTITY_BYTES + pushed.size
            if self._waiting_bytes + size <= self._most_waiting_bytes:
                self._waiting.append((client, pushed))
                self._waiting_bytes += size
            else:
                self._dropped += 1
        self._wake.set()

    def _run(self) -> None:
        while not self._is_over:
            self._wake.wait()
            self._wake.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        assert self._path is not None
        with self._lock:
            waiting, self._waiting = self._waiting, []
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning(
                "client metrics file %s: writing is too slow, %d pushes are dropped", self._path, dropped
            )
        if not waiting:
            return
        try:
            for client, pushed in waiting:
                self._append(self._path, _line(client, pushed))
        except OSError as error:
            log.error("client metrics file %s: cannot be written, pushes are lost: %s", self._path, error)
        with self._lock:
            self._waiting_bytes -= sum(_IDENTITY_BYTES + pushed.size for _, pushed in waiting)

    def _append(self, path: Path, line: bytes) -> None:
        file = os.open(path, _FLAGS, 0o600)
        try:
            if os.fstat(file).st_size + len(line) > self._most_bytes:
                path.replace(path.with_name(path.name + ".1"))
                os.close(file)
                file = os.open(path, _FLAGS, 0o600)
            while line:
                line = line[os.write(file, line) :]
        finally:
            os.close(file)


def _line(client: ClientIdentity, pushed: PushedMetrics) -> bytes:
    given: dict[str, Any] = {"time_ms": pushed.time_ms, **asdict(client)}
    given["resource"] = dict(pushed.resource)
    given["metrics"] = [_point(point) for point in pushed.points]
    return json.dumps(given).encode() + b"\n"


def _point(point: MetricPoint) -> dict[str, Any]:
    return {name: value for name, value in asdict(point).items() if value not in ("", None, {})}
