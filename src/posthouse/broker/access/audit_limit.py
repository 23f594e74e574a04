"""Rate limit for audit entries that clients can cause without any permission.

A *source* is a principal or, before login, an address. One source gets at most `LINES_OF_A_SOURCE` lines per
interval, and all sources together at most `LINES`, so that no client can fill the disk. Dropped entries are
counted by source and by action. The counters are bounded too: for sources beyond `SOURCES` only the sum is
kept.
"""

from collections import Counter

from posthouse.broker.access.audit_entries import AuditEntry, summary_line

LINES_OF_A_SOURCE = 100
LINES = 500
SOURCES = 1000
OTHERS = "others"


class LimitedEntries:
    """Entries of one kind. Repeated entries within an interval are one line with a count."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._entries: dict[AuditEntry, list[int]] = {}
        """Time of the first occurrence, and the count."""
        self._lines: Counter[str] = Counter()
        self._left_out: dict[str, Counter[str]] = {}

    def add(self, source: str, entry: AuditEntry, at_ms: int) -> None:
        known = self._entries.get(entry)
        if known is not None:
            known[1] += 1
        elif len(self._entries) < LINES and self._lines[source] < LINES_OF_A_SOURCE:
            self._entries[entry] = [at_ms, 1]
            self._lines[source] += 1
        else:
            self._leave_out(source, entry.action, 1)

    def _leave_out(self, source: str, action: str, count: int) -> None:
        if source not in self._left_out and len(self._left_out) >= SOURCES:
            source = OTHERS
        self._left_out.setdefault(source, Counter())[action] += count

    def end_interval(self, now_ms: int) -> list[bytes]:
        """The lines of the interval that ends now."""
        lines = [entry.line(at_ms, count) for entry, (at_ms, count) in self._entries.items()]
        lines += [
            summary_line(now_ms, source, actions, allowed=self._allowed)
            for source, actions in self._left_out.items()
        ]
        self._entries.clear()
        self._lines.clear()
        self._left_out.clear()
        return lines
