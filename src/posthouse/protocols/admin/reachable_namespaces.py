"""Namespaces (virtual hosts) as far as a client may know of them.

The default one is open to all clients that have logged in, another one to those that may do something there,
as by AMQP. Clients that may describe the cluster know of all. The others get the same answer whether a
namespace exists or not.
"""

from urllib.parse import quote

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.queues.names import topic_prefixes
from posthouse.broker.queues.namespace import Namespace
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.problems import Problem


def reachable_namespace(context: CallContext, name: str) -> Namespace:
    """Raises Problem 403 and UnknownNamespace."""
    check_reaches(context, name)
    return context.broker.namespaces.get(name)


def check_reaches(context: CallContext, name: str) -> None:
    """Raises Problem 403."""
    if not _reaches(context, name):
        raise Problem(
            403,
            f"you may not see namespace {name!r}; ask an administrator for a permission on a queue or "
            "exchange in it",
        )


def reachable_namespaces(context: CallContext) -> list[Namespace]:
    """Of those that this broker serves."""
    return [namespace for namespace in context.broker.namespaces if _reaches(context, namespace.name)]


def chosen_namespaces(context: CallContext, name: str | None) -> list[Namespace]:
    """The one that a client names, or all that it reaches. Raises Problem 403 and UnknownNamespace."""
    return reachable_namespaces(context) if name is None else [reachable_namespace(context, name)]


def namespace_names(context: CallContext) -> list[str]:
    """Of all namespaces, whichever broker serves them. One that is not configured any more, and keeps what
    was declared in it, is known to the broker that serves it."""
    namespaces = context.broker.namespaces
    return list(dict.fromkeys([*namespaces.configured, *(each.name for each in namespaces)]))


def place_prefix(namespace: str) -> str:
    """How the places of what it has begin, in lists of all namespaces."""
    return quote(namespace, safe="") + "/"


def _reaches(context: CallContext, name: str) -> bool:
    guard = context.guard
    return (
        name == DEFAULT_NAMESPACE
        or guard.may(Operation.DESCRIBE, Kind.CLUSTER, CLUSTER)
        or guard.reaches(Kind.TOPIC, topic_prefixes(name))
    )
