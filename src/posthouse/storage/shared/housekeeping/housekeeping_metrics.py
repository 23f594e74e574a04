"""What housekeeping of the shared storage counts in this broker, since the storage was opened."""

from posthouse.storage.remote_metrics import UpkeepMetrics


class HousekeepingMetrics:
    """Written by the event loop only."""

    __slots__ = (
        "consolidated_bytes",
        "consolidated_runs",
        "consolidation_lag_seconds",
        "consolidation_seconds",
        "damaged_logs",
        "deleted_objects",
        "deleted_orphans",
        "doomed_objects",
        "free_slots",
        "merged_segments",
        "removed_segments",
        "segments_written",
        "truncated_slots",
    )

    def __init__(self) -> None:
        self.consolidated_runs = 0
        self.consolidated_bytes = 0
        """Of segments that consolidation wrote."""
        self.segments_written = 0
        self.consolidation_seconds = 0.0
        self.consolidation_lag_seconds = 0.0
        """How long the oldest run of its logs waits for consolidation beyond its time, as of the last
        turn."""
        self.damaged_logs = 0
        """Logs that the last turn could not consolidate further."""
        self.merged_segments = 0
        """Small ones that became part of a larger one."""
        self.removed_segments = 0
        """Below the start of their log, or of deleted topics."""
        self.free_slots: int | None = None
        """None before the first turn."""
        self.truncated_slots = 0
        self.doomed_objects: int | None = None
        """Not used any more, and not deleted yet. None before the first turn."""
        self.deleted_objects = 0
        self.deleted_orphans = 0
        """Objects that were uploaded, but never committed."""

    def now(self) -> UpkeepMetrics:
        return UpkeepMetrics(
            consolidation_lag_seconds=self.consolidation_lag_seconds,
            consolidated_bytes=self.consolidated_bytes,
            segments_written=self.segments_written,
            damaged_logs=self.damaged_logs,
            free_slots=self.free_slots,
            doomed_objects=self.doomed_objects,
            deleted_objects=self.deleted_objects,
            deleted_orphans=self.deleted_orphans,
        )
