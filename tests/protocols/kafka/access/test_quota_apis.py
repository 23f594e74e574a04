"""Quotas by Kafka's admin calls."""

import math
from typing import Any

import pytest

from posthouse.protocols.kafka.codec.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from posthouse.protocols.kafka.codec.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entity = tuple[tuple[str, str | None], ...]

ANN: Entity = (("user", "ann"),)
EVERY_USER: Entity = (("user", None),)
TOOL: Entity = (("client-id", "tool"),)
EVERY_CLIENT: Entity = (("client-id", None),)
ANNS_TOOL: Entity = (("user", "ann"), ("client-id", "tool"))
ANNS_CLIENTS: Entity = (("user", "ann"), ("client-id", None))
KEPT = (ANN, EVERY_USER, TOOL, EVERY_CLIENT, ANNS_TOOL, ANNS_CLIENTS)


@pytest.fixture
async def broker() -> Any:
    async with AsyncBroker() as running:
        yield running


async def alter(wire: Wire, entity: Entity, *, validate_only: bool = False, **rates: float | None) -> int:
    entry = RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=rate or 0, remove=rate is None) for key, rate in rates.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    [result] = (await wire.ask(request, AlterClientQuotasResponse)).entries
    assert tuple((each.entity_type, each.entity_name) for each in result.entity) == entity
    assert bool(result.error_message) == bool(result.error_code)
    return result.error_code


async def ask(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components
        ],
        strict=strict,
    )
    return await wire.ask(request, DescribeClientQuotasResponse)


async def found(
    wire: Wire, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[Entity, dict[str, float]]:
    answer = await ask(wire, *components, strict=strict)
    assert answer.error_code == 0, answer.error_message
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


async def test_a_quota_is_set_and_removed(wire: Wire) -> None:
    assert await alter(wire, ANN, producer_byte_rate=1000.0, request_percentage=12.5) == 0
    assert await found(wire) == {ANN: {"producer_byte_rate": 1000.0, "request_percentage": 12.5}}
    assert await alter(wire, ANN, producer_byte_rate=None, consumer_byte_rate=5.0) == 0
    assert await found(wire) == {ANN: {"consumer_byte_rate": 5.0, "request_percentage": 12.5}}
    assert await alter(wire, ANN, consumer_byte_rate=None, request_percentage=None) == 0
    assert await found(wire) == {}


async def test_trying_changes_nothing(wire: Wire) -> None:
    assert await alter(wire, ANN, validate_only=True, producer_byte_rate=1000.0) == 0
    assert await alter(wire, ANN, validate_only=True, producer_byte_rate=-1.0) == ErrorCode.INVALID_REQUEST
    assert await found(wire) == {}


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, set(KEPT)),
        ((), True, set()),
        ((("user", EXACT, "ann"),), False, {ANN, ANNS_TOOL, ANNS_CLIENTS}),
        ((("user", EXACT, "ann"),), True, {ANN}),
        ((("user", EXACT, "ben"),), False, set()),
        ((("user", DEFAULT, None),), False, {EVERY_USER}),
        ((("user", SPECIFIED, None),), False, {ANN, EVERY_USER, ANNS_TOOL, ANNS_CLIENTS}),
        ((("user", SPECIFIED, None),), True, {ANN, EVERY_USER}),
        ((("client-id", EXACT, "tool"),), False, {TOOL, ANNS_TOOL}),
        ((("client-id", DEFAULT, None),), False, {EVERY_CLIENT, ANNS_CLIENTS}),
        ((("client-id", DEFAULT, None),), True, {EVERY_CLIENT}),
        ((("user", EXACT, "ann"), ("client-id", DEFAULT, None)), True, {ANNS_CLIENTS}),
        ((("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), False, {ANNS_TOOL, ANNS_CLIENTS}),
    ],
)
async def test_filters(components: Any, strict: bool, expected: set[Entity], wire: Wire) -> None:
    for entity in KEPT:
        assert await alter(wire, entity, producer_byte_rate=1.0) == 0
    assert (await found(wire, *components, strict=strict)).keys() == expected


@pytest.mark.parametrize(
    "components",
    [
        (("ip", EXACT, "10.0.0.1"),),
        (("group", EXACT, "g"),),
        (("user", EXACT, None),),
        (("user", DEFAULT, "ann"),),
        (("user", SPECIFIED, "ann"),),
        (("user", 3, None),),
        (("user", EXACT, "ann"), ("user", EXACT, "ben")),
    ],
)
async def test_filters_that_mean_nothing(components: Any, wire: Wire) -> None:
    answer = await ask(wire, *components)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert answer.entries is None


@pytest.mark.parametrize(
    ("entity", "rates"),
    [
        ((("ip", "10.0.0.1"),), {"connection_creation_rate": 1.0}),
        ((("ip", None),), {"producer_byte_rate": 1.0}),
        ((("group", "g"),), {"producer_byte_rate": 1.0}),
        ((("user", ""),), {"producer_byte_rate": 1.0}),
        ((("user", "ann"), ("user", "ben")), {"producer_byte_rate": 1.0}),
        ((), {"producer_byte_rate": 1.0}),
        (ANN, {"controller_mutation_rate": 1.0}),
        (ANN, {"producer_byte_rate": 0.0}),
        (ANN, {"producer_byte_rate": -1.0}),
        (ANN, {"producer_byte_rate": math.nan}),
        (ANN, {"producer_byte_rate": math.inf}),
        (ANN, {"consumer_byte_rate": 10.0, "producer_byte_rate": -1.0}),
    ],
)
async def test_what_is_not_accepted(entity: Entity, rates: dict[str, Any], wire: Wire) -> None:
    assert await alter(wire, entity, **rates) == ErrorCode.INVALID_REQUEST
    assert await found(wire) == {}


async def test_a_quota_is_changed_once(wire: Wire) -> None:
    entry = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="ann")],
        ops=[OpData(key="producer_byte_rate", value=each) for each in (1.0, 2.0)],
    )
    answer = await wire.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST
    assert await found(wire) == {}
