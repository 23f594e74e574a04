"""Requests of consumer groups, which go to the broker that coordinates the group, wherever that is now."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from bench.scale.asking import NotDone
from posthouse.client.addresses import Node
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import ClientError
from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_GROUP = 0
_TIMEOUT = 5.0
_LIMIT = 60.0
_RETRY_SECONDS = 0.01
_AT_ONCE = 1000


class NotNow(Exception):
    """To be tried again."""


def coordinator_ports(port: int, names: Sequence[str], key_type: int = _GROUP) -> dict[str, int]:
    """By the names of groups, as the broker at `port` tells them; `key_type` is what else has these names.
    Raises NotNow, ClientError."""
    found: dict[str, int] = {}
    with closing(BrokerConnection(Node("127.0.0.1", port), timeout=_TIMEOUT)) as connection:
        for first in range(0, len(names), _AT_ONCE):
            keys = list(names[first : first + _AT_ONCE])
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            for each in connection.ask(request, FindCoordinatorResponse).coordinators:
                if each.error_code:
                    raise NotNow(f"{each.key} has no coordinator: error {each.error_code}")
                found[each.key] = each.port
    return found


class OffsetCommitter:
    """A client that commits an offset of one group again and again, and follows its coordinator."""

    def __init__(self, ports: Sequence[int], group: str, topic: bytes) -> None:
        """`ports` are those of all brokers."""
        self._ports = ports
        self._group = group
        self._topic = topic
        self._connection: BrokerConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def commit(self, offset: int) -> None:
        """Raises NotNow, ClientError, and then asks for the coordinator before it is used again."""
        try:
            self._commit(offset)
        except (NotNow, ClientError):
            self.close()
            raise

    def _commit(self, offset: int) -> None:
        if self._connection is None:
            self._connection = connected_to_coordinator(self._ports, self._group)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            topics=[OffsetCommitRequestTopic(topic_id=self._topic, partitions=[partition])],
        )
        answer = self._connection.ask(request, OffsetCommitResponse)
        if code := answer.topics[0].partitions[0].error_code:
            raise NotNow(f"an offset was not committed: error {code}")


def connected_to_coordinator(ports: Sequence[int], name: str, key_type: int = _GROUP) -> BrokerConnection:
    """`ports` are those of all brokers; the first one that answers is believed. Raises NotNow,
    ClientError."""
    problem: Exception = NotNow("there is no broker")
    for port in ports:
        try:
            found = coordinator_ports(port, [name], key_type)[name]
            return BrokerConnection(Node("127.0.0.1", found), timeout=_TIMEOUT)
        except (NotNow, ClientError) as error:
            problem = error
    raise problem


def until_done(work: Callable[[], None]) -> int:
    """Again and again; returns how often it failed before. Raises NotDone after a minute."""
    deadline = time.monotonic() + _LIMIT
    failures = 0
    while True:
        try:
            work()
            return failures
        except (NotNow, ClientError, OSError) as error:
            if time.monotonic() > deadline:
                raise NotDone(f"it does not work after {_LIMIT:g} s: {error}") from error
        failures += 1
        time.sleep(_RETRY_SECONDS)
