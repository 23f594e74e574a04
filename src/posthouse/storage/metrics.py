"""What a storage counts of its own work. Every storage has these numbers, as far as they apply to it."""

from collections.abc import Callable

from posthouse.model.histogram import COUNTS, SECONDS, Histogram
from posthouse.storage.remote_metrics import RemoteMetrics


class StorageMetrics:
    """Each field is written by one thread, in place; the event loop reads them all."""

    __slots__ = (
        "checkpoint_failures",
        "checkpoint_seconds",
        "commits_per_sync",
        "compacted_partitions",
        "compaction_seconds",
        "journal_bytes",
        "remote",
        "retention_records",
        "retention_runs",
        "sync_seconds",
    )

    def __init__(self, remote: Callable[[], RemoteMetrics] | None = None) -> None:
        self.remote = remote
        """Of a storage in a database and an object store."""
        self.sync_seconds = Histogram(SECONDS)
        """Writing and syncing one group of commits to the journal, or storing it in the database."""
        self.commits_per_sync = Histogram(COUNTS)
        """Size of the groups (group commit)."""
        self.journal_bytes = 0
        """Written to the journal, or committed to a shared storage."""
        self.checkpoint_seconds = Histogram(SECONDS)
        self.checkpoint_failures = 0
        self.compaction_seconds = 0.0
        self.compacted_partitions = 0
        """Passes over one partition."""
        self.retention_runs = 0
        self.retention_records = 0
        """Offsets that retention removed."""
