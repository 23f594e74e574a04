"""The scopes of topics that were imported from the data directory of a single broker, which knows none."""

from collections.abc import Iterable

from posthouse.broker.queues.definition import decode_definition
from posthouse.broker.queues.internal_topics import queue_of
from posthouse.broker.queues.names import topic_name
from posthouse.broker.routing.definitions import ExchangeDefinition
from posthouse.broker.routing.encoding import decode_exchange, namespace_of
from posthouse.broker.schedule.logs import scope_of_schedule
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space


async def imported_scopes(
    shared: SharedState,
    topics: Iterable[Topic],
    predeclared: Iterable[ExchangeDefinition],
    configured: Iterable[str],
) -> dict[str, Scope]:
    """By the names of topics: of those that feed exchanges and queues, whether they exist or not, and of the
    broker's own. Raises Unavailable."""
    exchanges = await shared.of_space(Space.EXCHANGES)
    queues = await shared.of_space(Space.QUEUES)
    named = [(namespace_of(key), decode_exchange(value).name) for key, value in exchanges.items()]
    named += [(namespace_of(key), decode_definition(value[16:]).name) for key, value in queues.items()]
    namespaces = {*configured, *(namespace for namespace, _ in named)}
    named += [(namespace, each.name) for namespace in namespaces for each in predeclared]
    found = {topic_name(namespace, name): scope_of_namespace(namespace) for namespace, name in named}
    of_queues = {value[:16]: scope_of_namespace(namespace_of(key)) for key, value in queues.items()}
    for topic in topics:
        queue = queue_of(topic)
        scope = scope_of_schedule(topic.name) if queue is None else of_queues.get(queue)
        if scope is not None:
            found[topic.name] = scope
    return found
