"""ApiVersions: what is served, and in which versions."""

import re
from collections.abc import Sequence

from posthouse.protocols.kafka.codec.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.codec.registry import Api
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_FIRST_WITH_SOFTWARE = 3


def response(served: Sequence[Api], code: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in served
        ],
    )


def handler(served: Sequence[Api]) -> Handler[ApiVersionsRequest]:
    """Made from the table, so that what is advertised is what is there."""
    answer = response(served)

    def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.version >= _FIRST_WITH_SOFTWARE and not (
            _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        return answer

    return Handler(key=API_VERSIONS_KEY, handle=handle, refuse=_refuse)


def _refuse(
    context: Context, request: ApiVersionsRequest, code: ErrorCode, message: str
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)
