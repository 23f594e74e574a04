"""The audit log: who did what, from where, and whether it was allowed. Lines of JSON, only ever appended.

Nothing in it is secret: names, addresses and operations, never passwords, keys or what messages hold. Lines
are written by a thread. What repeats within a second is one line with a count, and there are not more than
`_MOST_A_SECOND` lines a second: whoever knocks at the door all day must not fill the disk.
"""

import json
import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from posthouse.broker.access.principal import Principal
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidConfig

log = logging.getLogger(__name__)

_EVERY_SECONDS = 1.0
_MOST_A_SECOND = 1000
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_LONGEST = 600
"""Characters of a resource or a detail: clients may make up names as long as they like."""


@dataclass(frozen=True, slots=True)
class Entry:
    principal: str
    peer: str
    protocol: str
    action: str
    resource: str
    allowed: bool
    detail: str = ""


class Audit:
    """`record` is for the event loop; the file belongs to the thread."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[Entry, tuple[int, int]] = {}
        self._left_out = 0
        self._wake = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._file = -1

    @property
    def is_on(self) -> bool:
        return self._path is not None

    def open(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, _FLAGS, 0o600)
        except OSError as error:
            raise InvalidConfig(
                f"the audit log {self._path} cannot be written: {error.strerror}; say audit=FILE or audit=off"
            ) from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everything that was recorded is on disk when this returns."""
        if self._thread is None:
            return
        self._is_over = True
        self._wake.set()
        self._thread.join()
        self._thread = None
        os.close(self._file)

    def record(
        self,
        principal: Principal | str,
        peer: str,
        protocol: str,
        action: str,
        resource: str,
        *,
        allowed: bool,
        detail: str = "",
    ) -> None:
        if self._path is None:
            return
        entry = Entry(str(principal), peer, protocol, action, resource[:_LONGEST], allowed, detail[:_LONGEST])
        with self._lock:
            known = self._entries.get(entry)
            if known is not None:
                self._entries[entry] = (known[0], known[1] + 1)
            elif len(self._entries) < _MOST_A_SECOND:
                self._entries[entry] = (self._clock.now_ms(), 1)
            else:
                self._left_out += 1

    def _run(self) -> None:
        while not self._is_over:
            self._wake.wait(_EVERY_SECONDS)
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            entries, self._entries = self._entries, {}
            left_out, self._left_out = self._left_out, 0
        lines = [_line(entry, at, count) for entry, (at, count) in entries.items()]
        if left_out:
            lines.append(_left_out(self._clock.now_ms(), left_out))
        if not lines:
            return
        try:
            self._follow()
            data = b"".join(lines)
            while data:
                data = data[os.write(self._file, data) :]
            os.fdatasync(self._file)
        except OSError as error:
            log.error("the audit log cannot be written, %d lines are lost: %s", len(lines), error)

    def _follow(self) -> None:
        """Begin another file where somebody has moved this one away."""
        assert self._path is not None
        try:
            is_there = os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            other = os.open(self._path, _FLAGS, 0o600)
            os.close(self._file)
            self._file = other


def _line(entry: Entry, at: int, count: int) -> bytes:
    given: dict[str, Any] = {
        "time": _time(at),
        "principal": entry.principal,
        "peer": entry.peer,
        "protocol": entry.protocol,
        "action": entry.action,
        "resource": entry.resource,
        "allowed": entry.allowed,
    }
    if entry.detail:
        given["detail"] = entry.detail
    if count > 1:
        given["count"] = count
    return json.dumps(given).encode() + b"\n"


def _left_out(at: int, count: int) -> bytes:
    return json.dumps({"time": _time(at), "action": "left-out", "count": count}).encode() + b"\n"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
