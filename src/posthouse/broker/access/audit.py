"""The audit log: principal, address, operation, and whether it was allowed. Lines of JSON, append-only.

It holds no secrets: names, addresses and operations, never passwords, keys or message content.

Allowed *changes* are never left out, and are on disk before the client gets its answer: see `when_written`.
While the log cannot be written, changes wait in memory, up to `_MOST_UNWRITTEN`; after that further changes
are refused. Refusals and logins are written once in `_EVERY_SECONDS`, with a limit per source: see
`audit_limit`.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from posthouse.broker.access.audit_entries import AuditEntry
from posthouse.broker.access.audit_file import AuditFile
from posthouse.broker.access.audit_limit import LimitedEntries
from posthouse.broker.access.principal import Principal
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidConfig, Unavailable
from posthouse.model.excerpts import excerpt
from posthouse.model.networks import owner_of_peer

log = logging.getLogger(__name__)

LOGIN = "login"
_EVERY_SECONDS = 1.0
_MOST_UNWRITTEN = 10_000
"""Maximum number of changes in memory while the log cannot be written."""


class Audit:
    """Used by the event loop; a thread owns the file."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._changes: dict[AuditEntry, list[int]] = {}
        """Changes not yet taken by the thread: time of the first occurrence, and the count."""
        self._logins = LimitedEntries(allowed=True)
        self._refusals = LimitedEntries(allowed=False)
        self._refused_logins = LimitedEntries(allowed=False)
        self._last = 0
        """Number of the last change."""
        self._done = 0
        """Answers up to this change may be sent."""
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = threading.Event()
        self._is_over = False
        self._is_failing = False
        self._unwritten: list[bytes] = []
        """Lines of changes that are not on disk, owned by the thread."""
        self._thread: threading.Thread | None = None
        self._file: AuditFile | None = None

    @property
    def is_on(self) -> bool:
        return self._path is not None

    def open(self) -> None:
        if self._path is None:
            return
        try:
            self._file = AuditFile(self._path)
        except OSError as error:
            raise InvalidConfig(
                f"the audit log {self._path} cannot be written: {error.strerror}; set audit=FILE or audit=off"
            ) from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. On return all entries are on disk, or in the broker's own log."""
        if self._thread is None:
            return
        self._is_over = True
        self._wake.set()
        self._thread.join()
        self._thread = None
        if self._file is not None:
            self._file.close()

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
    ) -> int:
        """The number of the change, for `when_written`; 0 for an entry that is not a change.

        Raises Unavailable if the change must not be made because the audit log cannot be written.
        """
        if self._path is None:
            return 0
        source = excerpt(str(principal))
        entry = AuditEntry(source, peer, protocol, str(action), excerpt(resource), allowed, excerpt(detail))
        now = self._clock.now_ms()
        with self._lock:
            if allowed and action != LOGIN:
                return self._add_change(entry, now)
            if action != LOGIN:
                self._refusals.add(source, entry, now)
            elif allowed:
                self._logins.add(f"{source} at {owner_of_peer(peer)}", entry, now)
            else:  # the user name is not verified
                self._refused_logins.add(owner_of_peer(peer), entry, now)
        return 0

    def _add_change(self, entry: AuditEntry, now: int) -> int:
        if self._is_failing and len(self._unwritten) + len(self._changes) >= _MOST_UNWRITTEN:
            raise Unavailable(f"changes are refused while the audit log {self._path} cannot be written")
        known = self._changes.get(entry)
        if known is None:
            self._changes[entry] = [now, 1]
        else:
            known[1] += 1
        self._last += 1
        self._wake.set()
        return self._last

    def when_written(self, change: int, then: Callable[[], object]) -> None:
        """Call `then`, now or later, once the change is on disk, or in memory while the disk fails."""
        with self._lock:
            if self._is_unwritten(change):
                self._loop = asyncio.get_running_loop()
                self._waiting.append((change, then))
                return
        then()

    def is_written(self, change: int) -> bool:
        with self._lock:
            return not self._is_unwritten(change)

    def _is_unwritten(self, change: int) -> bool:
        return change > self._done and self._thread is not None

    async def written(self, change: int) -> None:
        if not self.is_written(change):
            done = asyncio.get_running_loop().create_future()
            self.when_written(change, lambda: None if done.done() else done.set_result(None))
            await done

    def _run(self) -> None:
        due = time.monotonic() + _EVERY_SECONDS
        while not self._is_over:
            self._wake.wait(max(due - time.monotonic(), 0.0))
            self._wake.clear()
            is_due = time.monotonic() >= due
            if is_due:
                due = time.monotonic() + _EVERY_SECONDS
            self._write(everything=is_due)
        self._write(everything=True)
        for line in self._unwritten:
            log.error("audit log %s: not written before the stop: %s", self._path, line.decode().rstrip())

    def _write(self, *, everything: bool) -> None:
        """Write pending lines. `everything` is set at the end of an interval: then failed lines are retried
        as well."""
        now = self._clock.now_ms()
        with self._lock:
            last = self._last
            self._unwritten += [entry.line(at, count) for entry, (at, count) in self._changes.items()]
            self._changes.clear()
            others: list[bytes] = []
            if everything:
                for each in (self._logins, self._refusals, self._refused_logins):
                    others += each.end_interval(now)
        if (self._unwritten or others) and (everything or not self._is_failing):
            self._append(others)
        with self._lock:
            self._done = last
            ready = [then for change, then in self._waiting if change <= last]
            self._waiting = [each for each in self._waiting if each[0] > last]
            loop = self._loop
        if ready and loop is not None and not loop.is_closed():
            for then in ready:
                loop.call_soon_threadsafe(then)

    def _append(self, others: list[bytes]) -> None:
        assert self._file is not None
        changes = len(self._unwritten)
        written, error = self._file.append([*self._unwritten, *others])
        del self._unwritten[:written]
        if error is None:
            if self._is_failing:
                log.warning("audit log %s: written again; no change is missing", self._path)
            self._is_failing = False
            return
        lost = len(others) - max(written - changes, 0)
        if not self._is_failing or lost:
            log.error(
                "audit log %s: cannot be written: %s; %d changes wait in memory, %d lines about logins and "
                "refusals are lost. Free disk space: above %d waiting changes, further changes are refused",
                *(self._path, error.strerror or error, len(self._unwritten), lost, _MOST_UNWRITTEN),
            )
        self._is_failing = True
