"""ApiVersions: what is served, and in which versions."""

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
from posthouse.protocols.kafka.handler import Context, Handler

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_FIRST_WITH_SOFTWARE = 3

_TRANSACTIONS = "transaction.version"
_FIRST_PROTOCOL = 1
_EPOCH_BUMPS = 2
"""Clients that see this take a new epoch with every transaction and add partitions by writing to them."""


def response(served: Sequence[Api], code: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in served
        ],
        supported_features=[
            SupportedFeatureKey(name=_TRANSACTIONS, min_version=_FIRST_PROTOCOL, max_version=_EPOCH_BUMPS)
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=_TRANSACTIONS, min_version_level=_EPOCH_BUMPS, max_version_level=_EPOCH_BUMPS
            )
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
