"""The life of a group whose members share its partitions out among themselves, as one table.

    EMPTY ──► GATHERING ──► AWAITING_ASSIGNMENT ──► STABLE
      ▲         │  ▲                 │                │
      └─────────┘  └─────────────────┴────────────────┘

GATHERING waits for the members to join, AWAITING_ASSIGNMENT for the leader to say who reads what.
"""

from enum import Enum, auto


class ClassicState(Enum):
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


TRANSITIONS: dict[tuple[ClassicState, Event], ClassicState] = {
    (ClassicState.EMPTY, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
    (ClassicState.EMPTY, Event.DELETED): ClassicState.DEAD,
    (ClassicState.GATHERING, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
    (ClassicState.GATHERING, Event.MEMBERS_GATHERED): ClassicState.AWAITING_ASSIGNMENT,
    (ClassicState.GATHERING, Event.NOBODY_LEFT): ClassicState.EMPTY,
    (ClassicState.AWAITING_ASSIGNMENT, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
    (ClassicState.AWAITING_ASSIGNMENT, Event.ASSIGNED): ClassicState.STABLE,
    (ClassicState.STABLE, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
}


def after(state: ClassicState, event: Event) -> ClassicState:
    """Where `event` leads; a KeyError is a defect of the machine, never of a client."""
    return TRANSITIONS[state, event]
