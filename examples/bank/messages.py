"""What the services tell each other, as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

TRANSFERS: Final = "bank-transfers"
RECEIPTS: Final = "bank-receipts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Money has left the account of the sender."""

    id: str
    sender: str
    number: int
    """Of the sender's transfers: 1, 2, 3 …"""
    receiver: str
    amount: int
    """Cents."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, value: bytes) -> Self:
        return cls(**json.loads(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a transfer."""

    transfer: str
    sender: str
    number: int
    is_credited: bool
    """False if the receiver takes no money: then the sender gets it back."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, value: bytes) -> Self:
        return cls(**json.loads(value))
