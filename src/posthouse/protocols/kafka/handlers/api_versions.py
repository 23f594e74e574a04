"""ApiVersions: the served APIs and their versions."""

import re
from collections.abc import Sequence

from posthouse.protocols.kafka.codec.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.codec.registry import Api
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.features import FEATURES
from posthouse.protocols.kafka.handler import Context, Handler

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_FIRST_WITH_SOFTWARE = 3

_FIRST_WITH_LEVEL_0 = 4
"""Some older clients cannot decode a feature whose lowest level is 0."""


def response(
    served: Sequence[Api], code: ErrorCode = ErrorCode.NONE, *, version: int = _FIRST_WITH_LEVEL_0
) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in served
        ],
        supported_features=[
            SupportedFeatureKey(name=each.name, min_version=each.min_level, max_version=each.level)
            for each in FEATURES
            if each.min_level > 0 or version >= _FIRST_WITH_LEVEL_0
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=each.name, min_version_level=each.level, max_version_level=each.level)
            for each in FEATURES
        ],
    )


def handler(served: Sequence[Api]) -> Handler[ApiVersionsRequest]:
    """Built from the dispatch table, so that exactly the served APIs are advertised."""
    answer, older_answer = response(served), response(served, version=_FIRST_WITH_LEVEL_0 - 1)

    def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.version >= _FIRST_WITH_SOFTWARE and not (
            _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if context.version >= _FIRST_WITH_SOFTWARE:
            context.introduce(request.client_software_name, request.client_software_version)
        return answer if context.version >= _FIRST_WITH_LEVEL_0 else older_answer

    return Handler(key=API_VERSIONS_KEY, handle=handle, refuse=_refuse)


def _refuse(
    context: Context, request: ApiVersionsRequest, code: ErrorCode, message: str
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)
