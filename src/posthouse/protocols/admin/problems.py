"""Errors as HTTP answers: problem details (RFC 9457), and the one table from domain errors to them."""

from http import HTTPStatus
from shlex import quote
from typing import Any

import msgspec

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import (
    AccessKeyExists,
    AccessRefused,
    AlreadyDecided,
    BadRequest,
    ConcurrentTransaction,
    DataDamaged,
    DefinitionMismatch,
    GroupNotEmpty,
    IdempotencyKeyReused,
    InUse,
    InvalidTransaction,
    LoginFailed,
    MembershipError,
    NameTaken,
    NotEmpty,
    NotFound,
    NotLeased,
    PosthouseError,
    QueueFull,
    QueueLocked,
    RecordTooLarge,
    StorageFull,
    TopicExists,
    Unavailable,
    WebhookExists,
)
from posthouse.protocols.admin.response import Response

CONTENT_TYPE = "application/problem+json"

_STATUS: tuple[tuple[type[PosthouseError], int], ...] = (
    (LoginFailed, 401),
    (AccessRefused, 403),
    (TopicExists, 409),
    (AccessKeyExists, 409),
    (WebhookExists, 409),
    (DefinitionMismatch, 409),
    (GroupNotEmpty, 409),
    (InUse, 409),
    (NotEmpty, 409),
    (QueueLocked, 409),
    (QueueFull, 409),
    (InvalidTransaction, 409),
    (AlreadyDecided, 409),
    (NameTaken, 409),
    (ConcurrentTransaction, 409),
    (MembershipError, 409),
    (NotLeased, 409),
    (IdempotencyKeyReused, 422),
    (RecordTooLarge, 413),
    (BadRequest, 400),
    (NotFound, 404),
    (DataDamaged, 500),
    (StorageFull, 507),
    (Unavailable, 503),
)
"""From the particular to the general: the first that fits counts."""


class Problem(Exception):
    """A request that cannot be served. `detail` is for the person who made it."""

    def __init__(
        self, status: int, detail: str, *, headers: tuple[tuple[str, str], ...] = (), **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.members = members

    @classmethod
    def of(cls, error: PosthouseError) -> "Problem":
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        return cls(status, str(error), error=type(error).__name__)

    def response(self) -> Response:
        document = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return Response(
            status=self.status,
            body=msgspec.json.encode(document | self.members),
            content_type=CONTENT_TYPE,
            headers=self.headers,
        )


_VERBS = {
    Operation.DESCRIBE_CONFIGS: "see the settings of",
    Operation.ALTER_CONFIGS: "change the settings of",
}
"""Of operations whose names are no verbs."""


def refused(operation: Operation, kind: Kind, name: str) -> Problem:
    """`YOU` in the command is for the name of the user, as in the sentences of Kafka's clients."""
    is_cluster = kind is Kind.CLUSTER
    thing, resource = (
        ("the broker", "cluster") if is_cluster else (f"{kind} {name!r}", f"{kind} {quote(name)}")
    )
    return Problem(
        403,
        f"you may not {_VERBS.get(operation, operation)} {thing}; ask an administrator for "
        f"'posthouse acl allow YOU {operation} {resource}'",
    )
