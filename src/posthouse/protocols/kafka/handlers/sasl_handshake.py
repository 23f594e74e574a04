"""SaslHandshake: chooses the SASL mechanism."""

from posthouse.protocols.kafka.codec.generated.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler

_FIRST_WITH_AUTHENTICATE = 1


def handle(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = context.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    is_there = login.begin(request.mechanism, raw=context.version < _FIRST_WITH_AUTHENTICATE)
    code = ErrorCode.NONE if is_there else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=login.mechanisms)


def _refuse(
    context: Context, request: SaslHandshakeRequest, code: ErrorCode, message: str
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code)


HANDLER = Handler(key=17, handle=handle, refuse=_refuse)
