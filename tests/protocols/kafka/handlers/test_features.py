"""Features: those of Kafka 4.3, each at its highest level, and no way to another."""

import pytest

from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.codec.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from posthouse.protocols.kafka.codec.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from posthouse.protocols.kafka.codec.generated.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.access.cases import built
from tests.protocols.kafka.wire import Wire
from tools.kafka_codec.apis import APIS
from tools.kafka_codec.schema import kio_type

KAFKA = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
UPGRADE, SAFE, UNSAFE = 1, 2, 3
_BY_PACKAGE = {api.package: api for api in APIS}


async def test_what_is_told(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await wire.ask(request, ApiVersionsResponse)
    assert {each.name: (each.min_version, each.max_version) for each in answer.supported_features} == KAFKA
    assert {each.name: each.max_version_level for each in answer.finalized_features} == {
        name: highest for name, (_, highest) in KAFKA.items()
    }
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    assert answer.finalized_features_epoch >= 0, "clients ignore features of an unknown epoch"


async def test_clients_that_cannot_read_level_0_are_not_told_of_it(wire: Wire) -> None:
    api = _BY_PACKAGE["api_versions"]
    request = built(
        kio_type(api, 3, "request"), {"client_software_name": "a", "client_software_version": "1"}
    )
    answer = await wire.ask_kio(request, kio_type(api, 3, "response"))
    assert [each.name for each in answer.supported_features] == ["metadata.version"]
    assert {each.name for each in answer.finalized_features} == set(KAFKA)


async def update(wire: Wire, name: str, level: int, kind: int, *, validate_only: bool = False) -> int:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[key], validate_only=validate_only)
    answer = await wire.ask(request, UpdateFeaturesResponse)
    assert bool(answer.error_code) == bool(answer.error_message)
    return answer.error_code


@pytest.mark.parametrize("validate_only", [True, False])
async def test_updates(wire: Wire, validate_only: bool) -> None:
    for name, (_, highest) in KAFKA.items():
        assert await update(wire, name, highest, UPGRADE, validate_only=validate_only) == 0
        for level, kind in (
            (highest + 1, UPGRADE),
            (highest - 1, UPGRADE),
            (highest - 1, SAFE),
            (0, UNSAFE),
            (-1, SAFE),
            (highest, 0),
            (highest, 4),
        ):
            code = await update(wire, name, level, kind, validate_only=validate_only)
            assert code == ErrorCode.INVALID_UPDATE_VERSION, (name, level, kind)
    assert await update(wire, "nonsense", 1, UPGRADE) == ErrorCode.INVALID_UPDATE_VERSION


async def test_older_versions_name_the_features(wire: Wire) -> None:
    api = _BY_PACKAGE["update_features"]
    for version, field in ((0, "allow_downgrade"), (1, "upgrade_type")):
        updates = [{"feature": "group.version", "max_version_level": 1, field: 1 if version else False}]
        request = built(kio_type(api, version, "request"), {"feature_updates": updates})
        answer = await wire.ask_kio(request, kio_type(api, version, "response"))
        assert [(each.feature, int(each.error_code)) for each in answer.results] == [("group.version", 0)]
    updates = [{"feature": "group.version", "max_version_level": 0, "allow_downgrade": True}]
    request = built(kio_type(api, 0, "request"), {"feature_updates": updates})
    answer = await wire.ask_kio(request, kio_type(api, 0, "response"))
    assert int(answer.error_code) == ErrorCode.INVALID_UPDATE_VERSION


async def test_there_are_no_delegation_tokens(wire: Wire) -> None:
    """As Kafka answers clients that have not logged in; see `access` for the others."""
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    created = await wire.ask(CreateDelegationTokenRequest(), CreateDelegationTokenResponse)
    times = (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms)
    assert (created.error_code, times, created.hmac) == (not_allowed, (-1, -1, -1), b"")
    assert (created.principal_type, created.principal_name) == ("User", "ANONYMOUS")
    renewed = await wire.ask(RenewDelegationTokenRequest(hmac=b"x"), RenewDelegationTokenResponse)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (not_allowed, -1)
    described = await wire.ask(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse)
    assert (described.error_code, described.tokens) == (not_allowed, [])
