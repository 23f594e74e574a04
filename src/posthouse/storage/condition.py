"""Whether a storage can take writes now, and how much room it has."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCondition:
    refusal: str | None = None
    """Why writes are refused: the storage is closed or fenced, or its disk does not answer."""
    impairments: Sequence[str] = ()
    """What else does not work, although writes are taken: sentences for operators."""
    free_bytes: int | None = None
    """None where there is no disk, or it does not answer."""
    total_bytes: int | None = None
    journal_bytes: int | None = None
    """Size of the journal files; None where there is no journal."""
    has_reserve: bool = True
    """Whether deleting would still work on a full disk."""
