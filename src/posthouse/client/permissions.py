"""ACLs of a broker: allow and deny rules. The numbers are the protocol's."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import BadArgument, refused
from posthouse.protocols.kafka.codec.generated.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse

EVERYBODY = "*"
ANY_NAME = "*"
ANY_HOST = "*"
THE_CLUSTER = "kafka-cluster"
_ANY = 1
_MATCHING = 2
_LITERAL = 3
_PREFIXED = 4
_DENY = 2
_ALLOW = 3
_USER = "User:"


class _Spoken(IntEnum):
    """An enum whose names are written as people type them."""

    @property
    def word(self) -> str:
        return self.name.lower().replace("_", "-")


class ResourceKind(_Spoken):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class AclOperation(_Spoken):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Permission:
    user: str
    """A user, or * for every authenticated user."""
    allow: bool = True
    operation: AclOperation
    kind: ResourceKind
    name: str
    """A name, or * for all of the kind."""
    is_prefix: bool = False
    host: str = ANY_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionFilter:
    """Matches ACLs that agree in every field that is not None."""

    user: str | None = None
    operation: AclOperation | None = None
    kind: ResourceKind | None = None
    name: str | None = None
    is_prefix: bool | None = None
    """None: ACLs whose name or pattern matches the name."""
    host: str | None = None


def add_permissions(connection: BrokerConnection, permissions: Sequence[Permission]) -> None:
    creations = [
        AclCreation(
            resource_type=each.kind,
            resource_name=each.name,
            resource_pattern_type=_PREFIXED if each.is_prefix else _LITERAL,
            principal=_USER + each.user,
            host=each.host,
            operation=each.operation,
            permission_type=_ALLOW if each.allow else _DENY,
        )
        for each in permissions
    ]
    response = connection.ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
    for each, result in zip(permissions, response.results, strict=True):
        if result.error_code:
            raise refused(result.error_code, result.error_message, each.name)


def list_permissions(connection: BrokerConnection, wanted: PermissionFilter) -> list[Permission]:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.kind or _ANY,
        resource_name_filter=wanted.name,
        pattern_type_filter=_pattern(wanted),
        principal_filter=None if wanted.user is None else _USER + wanted.user,
        host_filter=wanted.host,
        operation=wanted.operation or _ANY,
        permission_type=_ANY,
    )
    response = connection.ask(request, DescribeAclsResponse)
    if response.error_code:
        raise refused(response.error_code, response.error_message, wanted.name or "")
    return sorted(
        _permission(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in response.resources
        for each in resource.acls
    )


def remove_permissions(connection: BrokerConnection, wanted: Sequence[PermissionFilter]) -> list[Permission]:
    """Remove the matching ACLs; returns them."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=each.kind or _ANY,
            resource_name_filter=each.name,
            pattern_type_filter=_pattern(each),
            principal_filter=None if each.user is None else _USER + each.user,
            host_filter=each.host,
            operation=each.operation or _ANY,
            permission_type=_ANY,
        )
        for each in wanted
    ]
    removed = []
    response = connection.ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
    for asked, result in zip(wanted, response.filter_results, strict=True):
        if result.error_code:
            raise refused(result.error_code, result.error_message, asked.name or "")
        for each in result.matching_acls:
            if each.error_code:
                raise refused(each.error_code, each.error_message, each.resource_name)
            removed.append(
                _permission(
                    each.resource_type,
                    each.resource_name,
                    each.pattern_type,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission_type,
                )
            )
    return sorted(removed)


def parse_kind(text: str) -> ResourceKind:
    for kind in ResourceKind:
        if text.lower() == kind.word:
            return kind
    raise BadArgument(f"{text!r} is not a kind of resource; use {_words(ResourceKind)}")


def parse_operations(text: str) -> list[AclOperation]:
    """Names separated by commas."""
    by_word = {operation.word: operation for operation in AclOperation}
    found = []
    for word in (part.strip().lower() for part in text.split(",")):
        if word not in by_word:
            raise BadArgument(f"{word!r} is not an operation; use {_words(AclOperation)}")
        found.append(by_word[word])
    return list(dict.fromkeys(found))


def _words(kind: type[_Spoken]) -> str:
    return ", ".join(each.word for each in kind)


def _pattern(wanted: PermissionFilter) -> int:
    if wanted.is_prefix is not None:
        return _PREFIXED if wanted.is_prefix else _LITERAL
    return _ANY if wanted.name is None else _MATCHING


def _permission(
    kind: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> Permission:
    return Permission(
        user=principal.removeprefix(_USER),
        allow=permission == _ALLOW,
        operation=AclOperation(operation),
        kind=ResourceKind(kind),
        name=name,
        is_prefix=pattern == _PREFIXED,
        host=host,
    )
