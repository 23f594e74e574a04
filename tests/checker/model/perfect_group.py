"""A group of consumers that keeps every promise: leases, lanes in order, and dead letters."""

from dataclasses import dataclass, field

from tests.checker.history import Partition

PARTITION: Partition = ("lanes", 0)
MOST_DELIVERIES = 4


@dataclass(slots=True, eq=False)
class GroupMessage:
    value: int
    offset: int
    lane: str
    attempts: int = 0
    """Deliveries that are over."""
    is_settled: bool = False
    holder: int = 0
    """A number of its own for each delivery, 0 if there is none."""
    until: int = 0


@dataclass(slots=True)
class PerfectGroup:
    messages: list[GroupMessage] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    _deliveries: int = 0

    def publish(self, value: int, lane: str) -> None:
        self.messages.append(GroupMessage(value, len(self.messages), lane))

    def take(self, now: int, lasts: int, most: int) -> list[tuple[GroupMessage, int, int]]:
        """Messages, each with the number of its delivery and its attempt."""
        taken: list[tuple[GroupMessage, int, int]] = []
        waiting: set[str] = set()
        for message in self.messages:
            if message.is_settled or message.lane in waiting or len(taken) == most:
                continue
            if message.holder and message.until > now:
                waiting.add(message.lane)
                continue
            if message.holder:
                self._end(message)
            if message.attempts == MOST_DELIVERIES:
                self._bury(message)
                continue
            self._deliveries += 1
            message.holder, message.until = self._deliveries, now + lasts
            taken.append((message, message.holder, message.attempts + 1))
        return taken

    def _end(self, message: GroupMessage) -> None:
        message.holder = 0
        message.attempts += 1

    def _bury(self, message: GroupMessage) -> None:
        message.is_settled = True
        self.dead.append(message.value)

    def is_held(self, message: GroupMessage, delivery: int, now: int) -> bool:
        return not message.is_settled and message.holder == delivery and message.until > now

    def settle(self, message: GroupMessage, delivery: int, now: int) -> bool:
        if not self.is_held(message, delivery, now):
            return False
        message.is_settled = True
        return True

    def bury(self, message: GroupMessage, delivery: int, now: int) -> bool:
        if not self.is_held(message, delivery, now):
            return False
        self._bury(message)
        return True

    def change(self, message: GroupMessage, delivery: int, now: int, lasts: int) -> bool:
        if not self.is_held(message, delivery, now):
            return False
        if lasts:
            message.until = now + lasts
        else:
            self._end(message)
        return True

    def crash(self) -> None:
        """Leases are forgotten, and do not count as deliveries."""
        for message in self.messages:
            message.holder = 0

    def left(self) -> list[int]:
        return [message.value for message in self.messages if not message.is_settled]
