"""Which clients a seed has, and what they work on.

Not all of them at once: a seed has producers, and of the other parts any that it chooses. So what one part
does is not always mixed with all the others, and a seed takes less time.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.checker.history import Partition
from tests.checker.report import Anomaly
from tests.simulation.amqp_client import DEFAULT_VHOST
from tests.simulation.consuming import Consumer, consume, trim
from tests.simulation.kafka_client import KafkaClient
from tests.simulation.membership import Member, take_part
from tests.simulation.ownership import Ownership
from tests.simulation.producing import Sender, produce
from tests.simulation.queueing import HERE, Publisher, QueueConsumer, QueuePlace, consume_queue, publish
from tests.simulation.recorder import Recorder
from tests.simulation.transactions import Processor, process
from tests.simulation.world import World

Work = Coroutine[Any, Any, None]

PARTS = {
    "processors": 0.6,
    "readers": 0.6,
    "queues": 0.5,
    "members": 0.4,
    "trimming": 0.25,
}
"""How many seeds have each."""
TOPICS = {"orders": 3, "outcomes": 2}
QUEUES = ["parcels", "letters"]


class Workload:
    def __init__(
        self,
        world: World,
        recorder: Recorder,
        connect: Callable[[], KafkaClient],
        queue_places: Sequence[QueuePlace] = (HERE,),
    ) -> None:
        """If there are queues, there are some in each of the `queue_places`."""
        self._world = world
        self._random = world.random("workload")
        self._recorder = recorder
        self._connect = connect
        self._ownership = Ownership()
        self.parts = [part for part, share in PARTS.items() if self._random.random() < share]
        self._places = queue_places if "queues" in self.parts else ()
        self.queues = {queue: place for place in self._places for queue in _queues_of(place)}
        """Where each of them is."""

    def work(self) -> list[Work]:
        """What comes to an end of its own."""
        work = self._producers()
        if "processors" in self.parts:
            work += self._processors()
        if "queues" in self.parts:
            work += self._publishers()
        return work

    def attendance(self) -> list[Work]:
        """What goes on until the recorder says that it is over."""
        work = []
        if "readers" in self.parts:
            work += self._readers()
        if "members" in self.parts:
            work += self._members()
        if "queues" in self.parts:
            work += self._queue_consumers()
        if "trimming" in self.parts:
            work.append(trim(self._recorder, self._connect(), self._world.random("trimming"), ORDERS))
        return work

    def anomalies(self) -> list[Anomaly]:
        """What the history does not tell."""
        return list(self._ownership.anomalies())

    def _producers(self) -> list[Work]:
        work = []
        for number, idempotent in enumerate((True, True, False)):
            random = self._world.random(f"producer {number}")
            sender = Sender(self._recorder, self._connect(), random, ORDERS)
            work.append(produce(sender, self._random.randrange(4, 14), idempotent=idempotent))
        return work

    def _processors(self) -> list[Work]:
        work = []
        for number in range(2):
            name = f"processor {number}"
            random = self._world.random(name)
            processor = Processor(self._recorder, self._connect(), random, name, ORDERS[number], OUTCOMES)
            work.append(process(processor, self._random.randrange(3, 10)))
        return work

    def _publishers(self) -> list[Work]:
        places = [self._places[0], *self._places]
        publishers = [
            Publisher(self._recorder, self._world.random(f"publisher {number}"), _queues_of(place), place)
            for number, place in enumerate(places)
        ]
        return [publish(publisher, self._random.randrange(2, 9)) for publisher in publishers]

    def _readers(self) -> list[Work]:
        work = []
        for number, (partitions, committed_only, group) in enumerate(
            ((ORDERS, False, "readers"), (OUTCOMES, True, None), (OUTCOMES, False, None))
        ):
            consumer = Consumer(
                self._recorder,
                self._connect(),
                self._world.random(f"consumer {number}"),
                partitions,
                committed_only=committed_only,
                group=group,
            )
            work.append(consume(consumer))
        return work

    def _members(self) -> list[Work]:
        work = []
        for number in range(3):
            random = self._world.random(f"member {number}")
            member = Member(self._recorder, self._connect(), random, ORDERS, self._ownership)
            work.append(take_part(member))
        return work

    def _queue_consumers(self) -> list[Work]:
        work = []
        for number, queue in enumerate((*self.queues, self._random.choice(QUEUES))):
            random = self._world.random(f"queue consumer {number}")
            work.append(consume_queue(QueueConsumer(self._recorder, random, queue, self.queues[queue])))
        return work


def _queues_of(place: QueuePlace) -> list[str]:
    """The history does not tell virtual hosts apart, so no two of them have a queue of the same name."""
    return QUEUES if place.vhost == DEFAULT_VHOST else [f"{queue}.{place.vhost}" for queue in QUEUES]


def partitions_of(topic: str) -> list[Partition]:
    return [(topic, index) for index in range(TOPICS[topic])]


ORDERS = partitions_of("orders")
OUTCOMES = partitions_of("outcomes")
