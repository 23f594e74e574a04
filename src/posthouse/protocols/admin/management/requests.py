"""What handlers of the management API read out of paths, queries and bodies."""

from collections.abc import Mapping, Sequence
from typing import Any

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.errors import UnknownNamespace
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.management.errors import ManagementRefusal, bad_request, not_found
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.reachable_namespaces import (
    check_reaches,
    namespace_names,
    reachable_namespace,
    reachable_namespaces,
)
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.router import Parameters
from posthouse.protocols.direct_channel import DirectChannel

_DEFAULT_EXCHANGE = "amq.default"
"""What paths call the exchange without a name."""
_LONGEST_NAME = 255


def namespace_of(context: CallContext, parameters: Parameters) -> Namespace:
    try:
        return reachable_namespace(context, parameters["vhost"])
    except UnknownNamespace:
        raise not_found() from None


def namespaces_of(context: CallContext, parameters: Parameters) -> Sequence[Namespace]:
    """The one that the path names, or all that the client reaches and this broker serves."""
    return [namespace_of(context, parameters)] if "vhost" in parameters else reachable_namespaces(context)


def vhost_of(context: CallContext, parameters: Parameters) -> str:
    """The name of the one that the path names, whichever broker serves it."""
    name = parameters["vhost"]
    check_reaches(context, name)
    if name not in namespace_names(context):
        raise not_found()
    return name


def queue_of(context: CallContext, namespace: Namespace, name: str) -> LogQueue:
    """Whether there is one is told to those who may see it."""
    context.require(Operation.DESCRIBE, Kind.TOPIC, namespace.topic_of(name))
    queue = namespace.queues.get(name)
    if queue is None:
        raise not_found()
    return queue


def exchange_of(context: CallContext, namespace: Namespace, name: str) -> Exchange:
    """Everyone sees the default exchange."""
    found = exchange_name(name)
    if found:
        context.require(Operation.DESCRIBE, Kind.TOPIC, namespace.topic_of(found))
    exchange = next((each for each in namespace.router.exchanges() if each.name == found), None)
    if exchange is None:
        raise not_found()
    return exchange


def exchange_name(name: str) -> str:
    return "" if name == _DEFAULT_EXCHANGE else name


def new_name(name: str) -> str:
    """Of something that is declared."""
    if len(name.encode()) > _LONGEST_NAME:
        raise bad_request(f"a name may have {_LONGEST_NAME} bytes")
    return name


def channel_of(context: CallContext, namespace: Namespace) -> DirectChannel:
    return context.backend.direct_channels.open(context.guard, context.peer, namespace)


def body_of(request: HttpRequest) -> Mapping[str, Any]:
    try:
        body = request.json()
    except Problem:
        raise bad_request("not_json") from None
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise bad_request("not_json")
    return body


def require_keys(body: Mapping[str, Any], *names: str) -> None:
    missing = [name for name in names if name not in body]
    if missing:
        raise bad_request("[" + ",".join(f"{{key_missing,{name}}}" for name in missing) + "]")


def boolean(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """rabbitmqadmin sends them as strings."""
    value = body.get(name, default)
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    raise bad_request(f"{name}: {value!r} is not a boolean")


def number(body: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = body[name]
    try:
        found = int(value)
    except (TypeError, ValueError):
        raise bad_request(f"{name}: {value!r} is not a number") from None
    if isinstance(value, bool) or found < least:
        raise bad_request(f"{name} must be at least {least}")
    return min(found, most)


def text(body: Mapping[str, Any], name: str, default: str = "") -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise bad_request(f"{name} must be a string")
    return value


def table(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Arguments of a declaration. RabbitMQ writes an empty table as [] at times."""
    value = body.get(name, {})
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} must be an object")
    if _has_null(value):
        raise ManagementRefusal(400, "bad_request", "null_not_allowed")
    return value


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_null(each) for each in value.values())
    if isinstance(value, list):
        return any(_has_null(each) for each in value)
    return value is None
