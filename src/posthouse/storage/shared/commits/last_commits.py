"""The last commits that this process has acknowledged. They outlive its storages: a storage that opens the
paths again recognises a database that has lost some of them."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True, kw_only=True)
class LastCommit:
    """Of one path; its `CommitCall` keeps it up to date."""

    number: int = 0
    """Of the last commit that is known to count."""
    confirmed_losses: int = 0
    """When the path was opened."""


class LastCommits:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[UUID, int], LastCommit] = {}

    def of(self, incarnation: UUID, path: int) -> LastCommit:
        return self._by_path.setdefault((incarnation, path), LastCommit())
