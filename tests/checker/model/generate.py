"""Histories of perfect brokers, from a seed."""

from tests.checker.history import History
from tests.checker.model.group_load import GroupLoad
from tests.checker.model.log_load import LogLoad
from tests.checker.model.queue_load import QueueLoad
from tests.checker.model.world import World


def generate(seed: int, operations: int, *, crashes: float = 0.002, lossy: bool = False) -> History:
    """A history of about so many operations on a log, on queues and in a
    group of consumers, which nothing is wrong with, unless they
    are to lose something at crashes. `crashes` is the probability of one at each step."""
    world = World(seed, crashes)
    log = LogLoad(world, lossy)
    queues = QueueLoad(world, lossy)
    group = GroupLoad(world)
    log.start()
    queues.start()
    group.start()
    world.run(operations)
    log.final_reads()
    queues.drain()
    group.drain()
    return world.history
