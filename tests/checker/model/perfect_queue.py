"""A queue that keeps every promise: at least once, in order, and what is settled for good stays away."""

from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from random import Random


class State(Enum):
    READY = auto()
    LEASED = auto()
    SETTLED = auto()
    """Settled, but not yet durably: a crash may undo it."""
    GONE = auto()


@dataclass(slots=True)
class Message:
    value: int
    state: State = State.READY
    connection: int = 0
    handed_out: bool = False


class PerfectQueue:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._messages: list[Message] = []
        self._ready: list[int] = []
        self._leased: dict[int, set[int]] = {}
        self._settled: list[int] = []

    def publish(self, value: int) -> None:
        heappush(self._ready, len(self._messages))
        self._messages.append(Message(value))

    def take(self, connection: int) -> tuple[int, int, bool] | None:
        """The place and value of the next message, and whether it was handed out before."""
        if not self._ready:
            return None
        place = heappop(self._ready)
        message = self._messages[place]
        again = message.handed_out
        message.state, message.connection, message.handed_out = State.LEASED, connection, True
        self._leased.setdefault(connection, set()).add(place)
        return place, message.value, again

    def settle(self, place: int, connection: int, durably: bool) -> bool:
        """False if the connection has not got the message any more."""
        if not self._release(place, connection):
            return False
        self._messages[place].state = State.GONE if durably else State.SETTLED
        if not durably:
            self._settled.append(place)
        return True

    def give_back(self, place: int, connection: int) -> None:
        if self._release(place, connection):
            self._return(place)

    def drop(self, connection: int) -> None:
        """The connection is lost, and what it had is ready again."""
        for place in self._leased.pop(connection, ()):
            self._return(place)

    def crash(self) -> None:
        """All connections are lost; and, perhaps, late settlements, and what was known to be handed out."""
        for connection in list(self._leased):
            for place in self._leased.pop(connection):
                self._return(place)
                self._messages[place].handed_out = self._chance.random() < 0.5
        for place in self._settled:
            if self._chance.random() < 0.5:
                self._return(place)
                self._messages[place].handed_out = self._chance.random() < 0.5
        self._settled = []

    def lose(self) -> None:
        """What an unsafe queue does at a crash: it forgets messages, and that others were settled."""
        self._ready = [place for place in self._ready if self._chance.random() < 0.5]
        heapify(self._ready)
        for place, message in enumerate(self._messages):
            if message.state is State.GONE and self._chance.random() < 0.1:
                self._return(place)

    def drain(self) -> list[int]:
        return [self._messages[heappop(self._ready)].value for _ in range(len(self._ready))]

    def _release(self, place: int, connection: int) -> bool:
        leased = self._leased.get(connection, set())
        if place not in leased:
            return False
        leased.remove(place)
        return True

    def _return(self, place: int) -> None:
        self._messages[place].state = State.READY
        heappush(self._ready, place)
