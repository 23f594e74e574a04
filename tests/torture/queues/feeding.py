"""Kafka producers that write to the topics of exchanges: their records are messages of the bound queues."""

import asyncio
from random import Random

from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Deliver, History, Outcome, Publish
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.queues.places import DEFAULT, FANNED, PLACES, Place
from tests.torture.recording import Recorder
from tests.torture.stream.links import Link, Topics, build_batch, check, produce
from tests.torture.stream.transactions import TransactionalProducer
from tests.torture.workloads import RETRY_SECONDS

_PARTITION = 0


class NotWhole(Exception):
    """Some queues have got their part of a transaction, others have not."""


class Feeder:
    """Sends every value once, and waits for its answer before the next."""

    def __init__(self, recorder: Recorder, random: Random, place: Place = DEFAULT) -> None:
        self._recorder = recorder
        self._random = random
        self._place = place
        self._process = recorder.process()
        self._topics = Topics({}, {place.topic: 1})

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            self._topics.ids[self._place.topic] = await _topic_id(wire, self._place.topic)
            while True:
                await self._send(wire)
                await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, wire: Link) -> None:
        value, invoked, code = self._recorder.value(), self._recorder.now(), None
        batch = build_batch([value], self._random)
        try:
            request = produce(self._topics, {(self._place.topic, _PARTITION): batch})
            answer = await wire.ask(request, ProduceResponse)
            [result] = answer.responses[0].partition_responses
            code = result.error_code
        finally:
            now, outcome = self._recorder.now(), _outcome(code)
            for queue in map(self._place.label, FANNED):
                self._recorder.add(Publish(self._process, invoked, now, queue, value, outcome))
        check(code, "Produce", result.error_message)
        self._recorder.moved()


def _outcome(code: int | None) -> Outcome:
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return Outcome.FAILED  # the broker has not tried: another one may write here
    return Outcome.OK if code == 0 else Outcome.UNKNOWN


async def _topic_id(wire: Wire, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    [topic] = (await wire.ask(request, MetadataResponse)).topics
    check(topic.error_code, "Metadata")
    return topic.topic_id


class TransactionalFeeder(TransactionalProducer):
    """Each transaction feeds queues of several virtual hosts, which can lie with as many brokers, and with
    others than the transaction does: either all of the queues get it or none."""

    def __init__(self, recorder: Recorder, random: Random, name: str) -> None:
        topics = Topics({}, {place.topic: 1 for place in PLACES})
        super().__init__(recorder, topics, random, name)
        self._undecided: list[dict[Place, int]] = []
        """Values by virtual host, of transactions whose end was not answered."""

    async def live(self, addresses: Addresses) -> None:
        await self._learn_topics(addresses)
        await super().live(addresses)

    async def settle(self, addresses: Addresses) -> None:
        await self._learn_topics(addresses)
        await super().settle(addresses)

    async def _learn_topics(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            for place in PLACES:
                self._topics.ids[place.topic] = await _topic_id(wire, place.topic)

    async def _transaction(self, wire: Wire) -> None:
        number, invoked = self._recorder.transaction(), self._recorder.now()
        values: dict[Place, int] = {}
        commit = self._random.random() < 0.8
        outcome = Outcome.FAILED
        try:
            for place in self._random.sample(PLACES, self._random.randint(1, len(PLACES))):
                values[place] = self._recorder.value()
                await self._send_values(wire, number, (place.topic, _PARTITION), [values[place]])
            if commit:
                outcome = Outcome.UNKNOWN
            await self._end(wire, number, commit=commit)
            if commit:
                outcome = Outcome.OK
        finally:
            self._record(values, invoked, outcome)
            if outcome is Outcome.UNKNOWN:
                self._undecided.append(values)
        await asyncio.sleep(RETRY_SECONDS)

    def _record(self, values: dict[Place, int], invoked: int, outcome: Outcome) -> None:
        # Queues get what was committed a moment after the end, so one transaction may overtake another.
        process, now = self._recorder.process(), self._recorder.now()
        for place, value in values.items():
            for queue in map(place.label, FANNED):
                self._recorder.add(Publish(process, invoked, now, queue, value, outcome))

    def check(self, history: History) -> None:
        """After the queues were drained. Raises NotWhole; the others are judged as messages of each queue."""
        delivered = {(each.queue, each.value) for each in history if isinstance(each, Deliver)}
        for values in self._undecided:
            found = {
                (place.label(queue), value): (place.label(queue), value) in delivered
                for place, value in values.items()
                for queue in FANNED
            }
            if len(set(found.values())) > 1:
                raise NotWhole(f"delivered, or not, of one transaction: {found}")
