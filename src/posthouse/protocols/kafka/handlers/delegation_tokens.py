"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken.

Delegation tokens are not supported. The answers are those of a Kafka broker without a secret key for tokens:
authenticated users get "tokens are disabled", all others "not allowed".
"""

from posthouse.broker.access.principal import ANONYMOUS
from posthouse.protocols.kafka.codec.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from posthouse.protocols.kafka.codec.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from posthouse.protocols.kafka.codec.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler

_NO_TIME = -1
_USER = "User"


def _code(context: Context) -> ErrorCode:
    if context.guard.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def create(context: Context, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    return _no_token(context, request, _code(context), "")


def _no_token(
    context: Context, request: CreateDelegationTokenRequest, code: ErrorCode, message: str
) -> CreateDelegationTokenResponse:
    asks = context.guard.principal.name
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=request.owner_principal_type or _USER,
        principal_name=request.owner_principal_name or asks,
        token_requester_principal_type=_USER,
        token_requester_principal_name=asks,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


def renew(context: Context, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=_code(context), expiry_timestamp_ms=_NO_TIME)


def expire(context: Context, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=_code(context), expiry_timestamp_ms=_NO_TIME)


def describe(context: Context, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_code(context))


CREATE = Handler(key=38, handle=create, refuse=_no_token)
RENEW = Handler(
    key=39,
    handle=renew,
    refuse=lambda context, request, code, message: RenewDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=_NO_TIME
    ),
)
EXPIRE = Handler(
    key=40,
    handle=expire,
    refuse=lambda context, request, code, message: ExpireDelegationTokenResponse(
        error_code=code, expiry_timestamp_ms=_NO_TIME
    ),
)
DESCRIBE = Handler(
    key=41,
    handle=describe,
    refuse=lambda context, request, code, message: DescribeDelegationTokenResponse(error_code=code),
)
