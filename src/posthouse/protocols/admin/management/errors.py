"""Errors as RabbitMQ's management API has them; its tools print the reason."""

from http import HTTPStatus

import msgspec

from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.response import Response
from posthouse.protocols.direct_channel import DirectRefusal

_ACCESS_REFUSED = 403
_NOT_FOUND = 404


class ManagementRefusal(Problem):
    """With RabbitMQ's own word for the kind of error."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(status, reason)
        self.error = error


def bad_request(reason: str) -> ManagementRefusal:
    return ManagementRefusal(400, "bad_request", reason)


def not_found() -> ManagementRefusal:
    return ManagementRefusal(404, "Object Not Found", "Not Found")


def refusal_of(refused: DirectRefusal) -> ManagementRefusal:
    if refused.code == _ACCESS_REFUSED:
        return ManagementRefusal(401, "not_authorised", str(refused))
    if refused.code == _NOT_FOUND:
        return ManagementRefusal(404, "not_found", str(refused))
    return bad_request(str(refused))


def rabbitmq_error(problem: Problem) -> Response:
    """RabbitMQ answers 401 where a permission is missing; rabbitmqadmin knows that, and not 403."""
    status, reason = problem.status, problem.detail
    if isinstance(problem, ManagementRefusal):
        error = problem.error
    elif status == HTTPStatus.FORBIDDEN:
        status, error = 401, "not_authorised"
    elif status == HTTPStatus.UNAUTHORIZED:
        error = "not_authorized"
    elif status == HTTPStatus.NOT_FOUND:
        error, reason = "Object Not Found", "Not Found"
    else:
        error = HTTPStatus(status).phrase.lower().replace(" ", "_")
    return Response(
        status=status,
        body=msgspec.json.encode({"error": error, "reason": reason}),
        headers=problem.headers,
    )
