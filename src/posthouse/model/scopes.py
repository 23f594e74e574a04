"""Scopes: what one broker of a cluster does for all of them, in parts that can lie with different brokers.

A scope has one holder at a time. `coordinator` is everything that is not split: transactions, queues, the
schedule, definitions and housekeeping. Consumer groups and share groups are split by the hash of their name.
Both kinds are in the same scopes, because a name belongs to a group of one kind only.

A broker that is alone holds all of them.
"""

from dataclasses import dataclass
from hashlib import sha256

GROUP_SCOPES = 64
_GROUPS = "groups/"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def group_shard(self) -> int | None:
        """The number of a scope of groups; None for any other."""
        return int(self.name.removeprefix(_GROUPS)) if self.name.startswith(_GROUPS) else None


COORDINATOR = Scope("coordinator")
GROUPS = tuple(Scope(f"{_GROUPS}{number:02}") for number in range(GROUP_SCOPES))
SCOPES = (COORDINATOR, *GROUPS)


def shard_of(owner: bytes) -> int:
    """The number of the scope that the state of this owner belongs to. The SQL function `shard_of` is the
    same."""
    return sha256(owner).digest()[0] % GROUP_SCOPES


def scope_of_group(group: str) -> Scope:
    return GROUPS[shard_of(group.encode())]
