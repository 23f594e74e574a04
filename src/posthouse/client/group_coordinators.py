"""Brokers that coordinate groups: each group has one, and it may change at any time."""

import time
from collections.abc import Callable
from typing import TypeVar

from posthouse.client.cluster import Cluster
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import BrokerUnreachable, ClientError, refused
from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

MOVING_CODES = frozenset({14, 15, 16})
"""The group is being loaded, has no coordinator at the moment, or has another one."""
_PAUSE_SECONDS = 0.1
_GROUP = 0
_NOT_AVAILABLE = 15

T = TypeVar("T")


def ask_coordinator(
    cluster: Cluster, group: str, ask: Callable[[BrokerConnection], T], code: Callable[[T], int]
) -> T:
    """What the coordinator of the group answers to `ask`, which may be repeated; `code` is the error code of
    an answer. While the group moves to another broker it waits, for as long as a broker has to answer."""
    deadline = time.monotonic() + cluster.timeout
    is_alone = len(cluster.node_ids()) == 1
    while True:
        try:
            answer = ask(cluster.any()) if is_alone else _asked(cluster, group, ask)
            if is_alone and answer is not None and code(answer) == _NOT_AVAILABLE:
                return answer  # it is starting or stopping
            if answer is not None and code(answer) not in MOVING_CODES:
                return answer
            error: ClientError = refused(_NOT_AVAILABLE if answer is None else code(answer), None, group)
        except BrokerUnreachable as unreachable:
            if is_alone:
                raise
            error = unreachable  # perhaps only this one: another broker takes over
        node = cluster.coordinators.pop(group, None)
        if node is not None and isinstance(error, BrokerUnreachable):
            cluster.drop(node)
        if time.monotonic() > deadline:
            raise error
        time.sleep(_PAUSE_SECONDS)


def _asked(cluster: Cluster, group: str, ask: Callable[[BrokerConnection], T]) -> T | None:
    """None while the group has no coordinator."""
    if group not in cluster.coordinators:
        request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group])
        [found] = cluster.any().ask(request, FindCoordinatorResponse).coordinators
        if found.error_code in MOVING_CODES:
            return None
        if found.error_code:
            raise refused(found.error_code, found.error_message, group)
        cluster.coordinators[group] = found.node_id
        if found.node_id not in cluster.node_ids():
            cluster.refresh_nodes()
    return ask(cluster.broker(cluster.coordinators[group]))
