"""The rules of one subscription."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from posthouse.broker.subscriptions.leases import LeaseTerms
from posthouse.model.ids import GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRules:
    terms: LeaseTerms
    stable_only: bool
    """Records of transactions are delivered after commit; aborted records never."""
    may_renew: bool
    """Members may extend their leases."""
    begins_at_end: bool
    """Whether a partition without progress begins at the end of the log; otherwise at its start, or by
    time."""
    begins_ago_ms: int | None = None
    dead_letters: str | None = None
    """The topic that gets the records that were rejected or delivered too often."""


RulesOf: TypeAlias = Callable[[GroupId], SubscriptionRules]
"""Called each time: rules change while a subscription is in use."""
