"""A Kafka producer that writes to the topic of an exchange: its records are messages of the bound queues."""

import asyncio
from random import Random

from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Outcome, Publish
from tests.torture.brokers import Addresses
from tests.torture.queues.clients import EXCHANGE, FANNED
from tests.torture.recording import Recorder
from tests.torture.stream.links import Link, Topics, build_batch, check, produce
from tests.torture.workloads import RETRY_SECONDS

_PARTITION = 0


class Feeder:
    """Sends every value once, and waits for its answer before the next."""

    def __init__(self, recorder: Recorder, random: Random) -> None:
        self._recorder = recorder
        self._random = random
        self._process = recorder.process()
        self._topics = Topics({}, {EXCHANGE: 1})

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            self._topics.ids[EXCHANGE] = await _topic_id(wire)
            while True:
                await self._send(wire)
                await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, wire: Link) -> None:
        value, invoked, code = self._recorder.value(), self._recorder.now(), None
        batch = build_batch([value], self._random)
        try:
            answer = await wire.ask(produce(self._topics, {(EXCHANGE, _PARTITION): batch}), ProduceResponse)
            [result] = answer.responses[0].partition_responses
            code = result.error_code
        finally:
            now, outcome = self._recorder.now(), _outcome(code)
            for queue in FANNED:
                self._recorder.add(Publish(self._process, invoked, now, queue, value, outcome))
        check(code, "Produce", result.error_message)
        self._recorder.moved()


def _outcome(code: int | None) -> Outcome:
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return Outcome.FAILED  # the broker has not tried: another one may write here
    return Outcome.OK if code == 0 else Outcome.UNKNOWN


async def _topic_id(wire: Link) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=EXCHANGE)], allow_auto_topic_creation=False)
    [topic] = (await wire.ask(request, MetadataResponse)).topics
    check(topic.error_code, "Metadata")
    return topic.topic_id
