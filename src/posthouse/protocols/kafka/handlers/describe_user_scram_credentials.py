"""DescribeUserScramCredentials: users and their mechanisms, without salts and keys."""

from collections import Counter

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.users import User
from posthouse.protocols.kafka.codec.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster
from posthouse.protocols.kafka.scram_codes import MECHANISM_CODES


def handle(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    require_on_cluster(context, Operation.DESCRIBE)
    users = context.broker.access.users
    if not request.users:
        return DescribeUserScramCredentialsResponse(results=[_described(user) for user in users])
    occurrences = Counter(each.name for each in request.users)
    return DescribeUserScramCredentialsResponse(
        results=[_result(name, times, users.get(name)) for name, times in occurrences.items()]
    )


def _result(name: str, times: int, user: User | None) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return _failed(name, ErrorCode.DUPLICATE_RESOURCE, f"the user {name!r} is named more than once")
    if user is None:
        return _failed(name, ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
    return _described(user)


def _described(user: User) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user.name,
        credential_infos=[
            CredentialInfo(mechanism=MECHANISM_CODES[mechanism], iterations=verifier.iterations)
            for mechanism, verifier in user.verifiers.items()
        ],
    )


def _failed(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)


def _refuse(
    context: Context, request: DescribeUserScramCredentialsRequest, code: ErrorCode, message: str
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)


HANDLER = Handler(key=50, handle=handle, refuse=_refuse)
