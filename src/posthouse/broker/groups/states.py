"""The state machine of a classic group, as one table.

    EMPTY ──► GATHERING ──► AWAITING_ASSIGNMENT ──► STABLE
      ▲         │  ▲                 │                │
      └─────────┘  └─────────────────┴────────────────┘

GATHERING waits for the members to join, AWAITING_ASSIGNMENT for the leader's assignment.
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
    """A member joined, left, or changed its subscription."""
    MEMBERS_GATHERED = auto()
    """All members have joined or timed out: a new generation begins."""
    ALL_LEFT = auto()
    ASSIGNED = auto()
    """The leader has assigned the partitions."""
    DELETED = auto()


TRANSITIONS: dict[tuple[ClassicState, Event], ClassicState] = {
    (ClassicState.EMPTY, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
    (ClassicState.EMPTY, Event.DELETED): ClassicState.DEAD,
    (ClassicState.GATHERING, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
    (ClassicState.GATHERING, Event.MEMBERS_GATHERED): ClassicState.AWAITING_ASSIGNMENT,
    (ClassicState.GATHERING, Event.ALL_LEFT): ClassicState.EMPTY,
    (ClassicState.AWAITING_ASSIGNMENT, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
    (ClassicState.AWAITING_ASSIGNMENT, Event.ASSIGNED): ClassicState.STABLE,
    (ClassicState.STABLE, Event.REBALANCE_NEEDED): ClassicState.GATHERING,
}


def after(state: ClassicState, event: Event) -> ClassicState:
    """The next state. A KeyError is a bug of the machine, never of a client."""
    return TRANSITIONS[state, event]
