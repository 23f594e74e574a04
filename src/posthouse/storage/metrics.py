"""What a storage counts of its own work. Every storage has these numbers, as far as they apply to it."""

from posthouse.model.histogram import COUNTS, SECONDS, Histogram


class StorageMetrics:
    """Each field is written by one thread, in place; the event loop reads them all."""

    __slots__ = (
        "checkpoint_failures",
        "checkpoint_seconds",
        "commits_per_sync",
        "compacted_partitions",
        "compaction_seconds",
        "journal_bytes",
        "retention_records",
        "retention_runs",
        "sync_seconds",
    )

    def __init__(self) -> None:
        self.sync_seconds = Histogram(SECONDS)
        """Writing and syncing one group of commits to the journal."""
        self.commits_per_sync = Histogram(COUNTS)
        """Size of the groups (group commit)."""
        self.journal_bytes = 0
        """Written to the journal."""
        self.checkpoint_seconds = Histogram(SECONDS)
        self.checkpoint_failures = 0
        self.compaction_seconds = 0.0
        self.compacted_partitions = 0
        """Passes over one partition."""
        self.retention_runs = 0
        self.retention_records = 0
        """Offsets that retention removed."""
