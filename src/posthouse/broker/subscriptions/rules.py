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
    """Records of transactions are delivered once these are committed, and never if they are aborted."""
    may_renew: bool
    """A member may extend its leases."""
    begins_at_end: bool
    """In a partition without progress, at the end of the log; else at its start, or some time ago."""
    begins_ago_ms: int | None = None


RulesOf: TypeAlias = Callable[[GroupId], SubscriptionRules]
"""Asked each time: rules change while a subscription is in use."""
