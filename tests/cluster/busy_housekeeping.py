"""Housekeeping that consolidates everything at once, instead of after minutes."""

from dataclasses import replace

from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings

SETTINGS = "posthouse.storage.shared.stores.UpkeepSettings"
_BUSY = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=0), consolidation_seconds=0.1, merging_seconds=0.5
)


def busy(*, producer_expiry_ms: int) -> UpkeepSettings:
    """In the place of the defaults."""
    return replace(_BUSY, producer_expiry_ms=producer_expiry_ms)
