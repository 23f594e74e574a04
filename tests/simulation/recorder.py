"""Writes down what clients do and are told."""

import itertools

from tests.checker.history import History
from tests.simulation.world import World


class Recorder:
    """One for all clients: values are unique over the whole history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.history = History()
        self._values = itertools.count(1)
        self._processes = itertools.count(1)
        self._transactions = itertools.count(1)
        self.pace = 1.0
        """How much longer than usual clients rest between pieces of work: it is to last for the faults."""
        self.is_over = False
        """Whether clients are to begin nothing more."""

    @property
    def now(self) -> int:
        return self._world.now_ns

    def value(self) -> int:
        return next(self._values)

    def process(self) -> int:
        return next(self._processes)

    def transaction(self) -> int:
        return next(self._transactions)
