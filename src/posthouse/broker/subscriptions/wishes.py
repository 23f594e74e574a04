"""What a fetch wants, and what it gets."""

from dataclasses import dataclass

from posthouse.broker.subscriptions.leases import LeasedRun
from posthouse.broker.subscriptions.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    max_bytes: int
    """A first batch may be larger; 0 takes none."""
    min_bytes: int = 1
    max_records: int
    is_strict: bool = False
    """Never more than `max_records`; otherwise the last batch is delivered whole."""
    run_size: int = 0
    """Maximum number of records in a run; 0: no limit."""
    seconds: float = 0.0
    lock_seconds: float | None = None
    """How long the records are leased; None: as the rules say."""
    while_connected: bool = False
    """They are leased for so long because the member is connected."""
    selection: Selection | None = None
    """None takes all."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Which records are leased to the member."""

    data: bytes
    """The whole batches that they are in; empty if there was a selection, which has seen them."""
    runs: list[LeasedRun]
    generation: int = 0
    """Of the partition, see `SubscribedPartition`."""
