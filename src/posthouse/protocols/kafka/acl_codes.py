"""ACLs in Kafka's codes, and filters over them."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from posthouse.broker.access.acls import ANY_NAME, Acl, Pattern
from posthouse.broker.access.operations import Kind
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.operations import OPERATION_CODES

ANY = 1
"""In filters: any value."""
_DENY, _ALLOW = 2, 3


class PatternType(IntEnum):
    ANY = ANY
    MATCH = 2
    """In filters: all rules that apply to a resource: literal, wildcard or prefixed."""
    LITERAL = 3
    PREFIXED = 4


_KIND_CODES = {Kind.TOPIC: 2, Kind.GROUP: 3, Kind.CLUSTER: 4, Kind.TRANSACTIONAL_ID: 5}
_PATTERN_CODES = {Pattern.LITERAL: PatternType.LITERAL, Pattern.PREFIXED: PatternType.PREFIXED}
_KINDS = {code: kind for kind, code in _KIND_CODES.items()}
_PATTERNS = {int(code): pattern for pattern, code in _PATTERN_CODES.items()}
_OPERATIONS = {code: operation for operation, code in OPERATION_CODES.items()}
# Kafka has more kinds of resources and operations. There are no permissions for them here.
_LAST_KIND, _LAST_OPERATION = 7, 15


@dataclass(frozen=True, slots=True)
class CodedAcl:
    """An ACL as encoded on the wire."""

    resource_type: int
    pattern_type: int
    operation: int
    permission_type: int


def coded(acl: Acl) -> CodedAcl:
    return CodedAcl(
        resource_type=_KIND_CODES[acl.kind],
        pattern_type=_PATTERN_CODES[acl.pattern],
        operation=OPERATION_CODES[acl.operation],
        permission_type=_ALLOW if acl.allow else _DENY,
    )


class Creation(Protocol):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def acl_of(given: Creation) -> Acl:
    """Raises Refused or InvalidAcl."""
    kind = _KINDS.get(given.resource_type)
    pattern = _PATTERNS.get(given.resource_pattern_type)
    operation = _OPERATIONS.get(given.operation)
    if kind is None:
        raise _invalid(f"there are no permissions for resources of type {given.resource_type}")
    if pattern is None:
        raise _invalid(f"a permission is literal or prefixed, not of type {given.resource_pattern_type}")
    if operation is None:
        raise _invalid(f"there is no operation {given.operation} to allow or deny")
    if given.permission_type not in (_DENY, _ALLOW):
        raise _invalid(f"a permission allows or denies; {given.permission_type} is neither")
    acl = Acl(
        kind=kind,
        name=given.resource_name,
        pattern=pattern,
        principal=given.principal,
        host=given.host,
        operation=operation,
        allow=given.permission_type == _ALLOW,
    )
    acl.check()
    return acl


class Filter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclFilter:
    """Raises Refused if a code is unknown."""

    def __init__(self, given: Filter) -> None:
        if not (
            ANY <= given.resource_type_filter <= _LAST_KIND
            and PatternType.ANY <= given.pattern_type_filter <= PatternType.PREFIXED
            and ANY <= given.operation <= _LAST_OPERATION
            and ANY <= given.permission_type <= _ALLOW
        ):
            raise _invalid("a filter with an unknown code")
        self._given = given

    def matches(self, acl: Acl) -> bool:
        given, codes = self._given, coded(acl)
        return (
            given.resource_type_filter in (ANY, codes.resource_type)
            and self._matches_name(acl)
            and given.principal_filter in (None, acl.principal)
            and given.host_filter in (None, acl.host)
            and given.operation in (ANY, codes.operation)
            and given.permission_type in (ANY, codes.permission_type)
        )

    def _matches_name(self, acl: Acl) -> bool:
        wanted, pattern = self._given.resource_name_filter, self._given.pattern_type_filter
        if pattern not in (PatternType.ANY, PatternType.MATCH, _PATTERN_CODES[acl.pattern]):
            return False
        if wanted is None:
            return True
        if pattern != PatternType.MATCH:
            return wanted == acl.name
        if acl.pattern is Pattern.PREFIXED:
            return wanted.startswith(acl.name)
        return acl.name in (wanted, ANY_NAME)


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, why)
