"""Entries of the audit log that clients can cause without being allowed anything: limited, and counted.

A *source* is whoever caused them: a principal or, before it is known who somebody is, an address. One source
gets no more than `LINES_OF_A_SOURCE` lines in an interval and all of them together no more than `LINES`, so
that nobody fills the disk. What is left out is counted by source and by action. The counters are bounded,
too: of sources beyond `SOURCES` only the sum is known.
"""

from collections import Counter

from posthouse.broker.access.audit_entries import AuditEntry, summary_line

LINES_OF_A_SOURCE = 100
LINES = 500
SOURCES = 1000
OTHERS = "others"


class LimitedEntries:
    """Of one kind. Entries that repeat within an interval are one line with a count."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._entries: dict[AuditEntry, list[int]] = {}
        """When each came first, and how often."""
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
