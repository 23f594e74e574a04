"""A Kafka client of several brokers: it finds the coordinators of groups, and goes on with another broker."""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.errors import ErrorCode
from tests.simulation.kafka_client import SECONDS, KafkaClient
from tests.simulation.kafka_wire import KafkaWire, Lost
from tests.simulation.machine import KAFKA_PORT

T = TypeVar("T", bound=Message)

_GROUP, _TRANSACTION = 0, 1
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Another broker may know better."""
_ROAMS = 0.05
"""How likely it is that a client goes on with another broker without a reason."""
_PARTS = ("topics", "partitions", "groups", "responses", "partition_responses")


class ClusterClient(KafkaClient):
    def __init__(self, hosts: Sequence[str], random: Random) -> None:
        """`hosts` are the addresses of all brokers."""
        super().__init__()
        self._hosts = hosts
        self._random = random
        self._home = random.choice(hosts)
        self._wires: dict[str, KafkaWire] = {}
        self._coordinators: dict[tuple[int, str], str] = {}

    def disconnect(self) -> None:
        wires, self._wires = self._wires, {}
        for wire in wires.values():
            wire.lose("it left")

    async def ask_ahead(self, requests: Sequence[Message], answer: type[T]) -> list[T | Lost]:
        key = _coordinated_by(requests[0])
        if self._random.random() < _ROAMS:
            self._move()
        try:
            host = self._home if key is None else await self._coordinator(key)
        except Lost as error:
            return [error] * len(requests)
        answers = await self._ask(host, requests, answer)
        for each in answers:
            if isinstance(each, Lost) or any(code in _ELSEWHERE for code in _codes(each)):
                if key is not None:
                    self._coordinators.pop(key, None)
                self._move()
                break
        return answers

    def _move(self) -> None:
        self._home = self._random.choice(self._hosts)

    async def _coordinator(self, key: tuple[int, str]) -> str:
        """Raises Lost."""
        known = self._coordinators.get(key)
        if known is not None:
            return known
        kind, name = key
        if kind == _TRANSACTION and self._random.random() < 0.5:
            return self._home  # any broker passes it on
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        [found] = await self._ask(self._home, [request], FindCoordinatorResponse)
        if isinstance(found, Lost):
            self._move()
            raise found
        [coordinator] = found.coordinators
        if coordinator.error_code:
            self._move()
            raise Lost(f"no coordinator: {ErrorCode(coordinator.error_code).name}")
        self._coordinators[key] = coordinator.host
        return coordinator.host

    async def _ask(self, host: str, requests: Sequence[Message], answer: type[T]) -> list[T | Lost]:
        wire = self._wires.get(host)
        try:
            if wire is None:
                async with asyncio.timeout(SECONDS):
                    wire = self._wires[host] = await KafkaWire.connect(KAFKA_PORT, host)
        except Lost as error:
            return [error] * len(requests)
        except TimeoutError:
            return [Lost("not connected in time")] * len(requests)
        self.broker = host
        answers = await self.answers_of(wire, requests, answer)
        if wire.lost is not None and self._wires.get(host) is wire:
            del self._wires[host]
        return answers


def _coordinated_by(request: Message) -> tuple[int, str] | None:
    """Who has to answer it: the coordinator of a group or of a transaction, or any broker."""
    group = getattr(request, "group_id", None)
    if group:
        return _GROUP, group
    groups = getattr(request, "groups", None)
    if groups:
        return _GROUP, groups[0].group_id
    name = type(request).__name__
    transactional_id = getattr(request, "transactional_id", None)
    if transactional_id is not None and name in ("InitProducerIdRequest", "EndTxnRequest"):
        return _TRANSACTION, transactional_id
    return None


def _codes(message: Message) -> Iterator[int]:
    code = getattr(message, "error_code", 0)
    if code:
        yield code
    for name in _PARTS:
        for each in getattr(message, name, None) or ():
            if isinstance(each, Message):
                yield from _codes(each)
