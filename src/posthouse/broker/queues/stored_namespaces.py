"""What the database has of the namespaces of one scope."""

from collections.abc import Mapping

from posthouse.broker.routing.encoding import namespace_of
from posthouse.model.scopes import NAMESPACES, Scope, scope_of_namespace
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

StoredNamespaces = dict[Space, Mapping[bytes, bytes]]
"""Exchanges, bindings, queues, their progress, and limits of their deliveries."""
_AT_ONCE = 1000


async def stored_namespaces(shared: SharedState, scope: Scope) -> StoredNamespaces:
    """Raises Unavailable."""
    shard = scope.namespace_shard
    assert shard is not None
    found: StoredNamespaces = dict(await shared.of_namespaces(shard))
    queues = [value[:16] for value in found[Space.QUEUES].values()]
    progress: dict[bytes, bytes] = {}
    for first in range(0, len(queues), _AT_ONCE):
        progress |= await shared.of_owners(Space.QUEUE_PROGRESS, queues[first : first + _AT_ONCE])
    found[Space.QUEUE_PROGRESS] = progress
    limits = await shared.of_space(Space.DELIVERY_LIMITS)  # few: operators set them by hand
    found[Space.DELIVERY_LIMITS] = {
        key: value for key, value in limits.items() if scope_of_namespace(namespace_of(key)) == scope
    }
    return found


def scope_of_source(value: bytes) -> Scope:
    """Of a topic in `Space.SOURCES`."""
    return NAMESPACES[value[0]]
