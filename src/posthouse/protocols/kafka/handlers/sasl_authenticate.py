"""SaslAuthenticate: one token of a SASL login."""

import asyncio

from posthouse.model.errors import LoginFailed
from posthouse.protocols.kafka.codec.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler

_FAILURE_SECONDS = 0.1
"""Delay of the answer to a failed login: slows down password guessing and clients that retry at once."""


async def handle(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    login = context.login
    if login is None or not login.is_begun:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslHandshake must be sent first"
        )
    try:
        answer = await login.take(bytes(request.auth_bytes))
    except LoginFailed as error:
        context.offended()
        await asyncio.sleep(_FAILURE_SECONDS)
        context.close_after_answer()
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=f"Authentication failed: {error}"
        )
    return SaslAuthenticateResponse(auth_bytes=answer)


def _refuse(
    context: Context, request: SaslAuthenticateRequest, code: ErrorCode, message: str
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message)


HANDLER = Handler(key=36, handle=handle, refuse=_refuse)
