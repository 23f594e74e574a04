"""The life of a group whose members share its partitions out among themselves, as one table.

    EMPTY ──► GATHERING ──► AWAITING_ASSIGNMENT ──► STABLE
      ▲         │  ▲                 │                │
      └─────────┘  └─────────────────┴────────────────┘

GATHERING waits for the members to join, AWAITING_ASSIGNMENT for the leader to say who reads what.
"""

from enum import Enum, auto


class State(Enum):
    EMPTY = auto()
    GATHERING = auto()
    AWAITING_ASSIGNMENT = auto()
    STABLE = auto()
    DEAD = auto()


class Event(Enum):
    REBALANCE_NEEDED = auto()
    """Somebody came, went, or changed what it asks for."""
    MEMBERS_GATHERED = auto()
    """Everybody who will, has joined: a new generation begins."""
    NOBODY_LEFT = auto()
    ASSIGNED = auto()
    """The leader has shared the partitions out."""
    DELETED = auto()


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.EMPTY, Event.REBALANCE_NEEDED): State.GATHERING,
    (State.EMPTY, Event.DELETED): State.DEAD,
    (State.GATHERING, Event.REBALANCE_NEEDED): State.GATHERING,
    (State.GATHERING, Event.MEMBERS_GATHERED): State.AWAITING_ASSIGNMENT,
    (State.GATHERING, Event.NOBODY_LEFT): State.EMPTY,
    (State.AWAITING_ASSIGNMENT, Event.REBALANCE_NEEDED): State.GATHERING,
    (State.AWAITING_ASSIGNMENT, Event.ASSIGNED): State.STABLE,
    (State.STABLE, Event.REBALANCE_NEEDED): State.GATHERING,
}


def after(state: State, event: Event) -> State:
    """Where `event` leads; a KeyError is a defect of the machine, never of a client."""
    return TRANSITIONS[state, event]
