"""What Kafka calls the states of transactions."""

from posthouse.broker.transactions.transaction import TransactionState

STATE_NAMES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.COMMITTED: "CompleteCommit",
    TransactionState.ABORTED: "CompleteAbort",
}

KNOWN_STATES = frozenset(STATE_NAMES.values()) | {
    "PrepareCommit",
    "PrepareAbort",
    "Dead",
    "PrepareEpochFence",
}
"""All that Kafka has; a transaction here is never in the others."""
