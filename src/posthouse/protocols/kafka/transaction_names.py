"""Kafka's names of the states of transactions."""

from posthouse.broker.transactions.transaction import TransactionState

STATE_NAMES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARED: "Ongoing",  # Kafka has no other name for it
    TransactionState.COMMITTED: "CompleteCommit",
    TransactionState.ABORTED: "CompleteAbort",
}

KNOWN_STATES = frozenset(STATE_NAMES.values()) | {
    "PrepareCommit",
    "PrepareAbort",
    "Dead",
    "PrepareEpochFence",
}
"""All states of Kafka; transactions here use only some of them."""
