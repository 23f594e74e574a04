"""Housekeeping that consolidates everything at once, instead of after minutes."""

from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings

SETTINGS = "posthouse.storage.shared.housekeeping.log_upkeep.UpkeepSettings"
_BUSY = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=0), consolidation_seconds=0.1, merging_seconds=0.5
)


def busy() -> UpkeepSettings:
    """In the place of the defaults."""
    return _BUSY
