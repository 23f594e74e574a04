"""Required permissions of requests, and Kafka's errors for missing ones.

Handlers check permissions before any lookup, so that an answer does not reveal whether a resource exists that
the client may not see.
"""

from collections.abc import Iterable

from posthouse.broker.access.commit_permission import missing_to_commit
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.protocols.kafka.config_resources import ResourceType
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context

_CODES = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def forbidden(operation: Operation, kind: Kind) -> Refused:
    return Refused(_CODES[kind], f"this needs the permission {operation} on the {kind}")


def require(context: Context, operation: Operation, kind: Kind, name: str) -> None:
    """Raises Refused."""
    if not context.guard.allows(operation, kind, name):
        raise forbidden(operation, kind)


def require_on_topic(context: Context, operation: Operation, name: str) -> None:
    require(context, operation, Kind.TOPIC, name)


def require_on_group(context: Context, operation: Operation, name: str) -> None:
    require(context, operation, Kind.GROUP, name)


def require_to_commit(context: Context, group: str, topic: str) -> None:
    missing = missing_to_commit(context.guard, group, topic)
    if missing is not None:
        raise forbidden(missing, Kind.TOPIC)


def require_on_transactional_id(context: Context, operation: Operation, name: str) -> None:
    require(context, operation, Kind.TRANSACTIONAL_ID, name)


def require_on_cluster(context: Context, operation: Operation) -> None:
    require(context, operation, Kind.CLUSTER, CLUSTER)


def require_on_configured(context: Context, operation: Operation, resource_type: int, name: str) -> None:
    """The permission for a resource with settings. All but topics and groups belong to the cluster."""
    if resource_type == ResourceType.TOPIC:
        require_on_topic(context, operation, name)
    elif resource_type == ResourceType.GROUP:
        require_on_group(context, operation, name)
    else:
        require_on_cluster(context, operation)


def require_creation(context: Context, name: str) -> None:
    if not context.guard.allows_here_or_everywhere(Operation.CREATE, Kind.TOPIC, name):
        raise forbidden(Operation.CREATE, Kind.TOPIC)


def check_enforced(context: Context) -> None:
    """Raises Refused if login is not required: ACLs that are not enforced would only pretend to protect
    something."""
    if not context.broker.access.is_required:
        raise Refused(
            ErrorCode.SECURITY_DISABLED,
            "ACLs need logins; start the broker with --authentication required to use them",
        )


def sees_topic(context: Context, name: str) -> bool:
    return context.guard.sees(Kind.TOPIC, name)


def sees_group(context: Context, name: str) -> bool:
    return context.guard.sees(Kind.GROUP, name)


def require_sight_of(context: Context, topics: Iterable[str]) -> None:
    """Raises Refused unless the client may describe all of these topics."""
    if not all(sees_topic(context, topic) for topic in topics):
        raise forbidden(Operation.DESCRIBE, Kind.TOPIC)
