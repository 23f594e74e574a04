"""Permissions by Kafka's admin calls: what is created, found by filters, and gone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.access.acls import Acl, Pattern
from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.kafka.codec.generated.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.scene import connected
from tests.protocols.kafka.wire import Wire

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DENY, ALLOW = 2, 3
TOPIC, GROUP, CLUSTER, TOKEN = 2, 3, 4, 6
READ, WRITE = 3, 4

# Resource type, name, pattern, principal, host, operation, permission.
KEPT = [
    (TOPIC, "orders", LITERAL, "User:ann", "*", READ, ALLOW),
    (TOPIC, "orders", LITERAL, "User:ben", "10.0.0.1", WRITE, DENY),
    (TOPIC, "ord", PREFIXED, "User:ann", "*", WRITE, ALLOW),
    (TOPIC, "*", LITERAL, "User:cat", "*", READ, ALLOW),
    (TOPIC, "ordersold", LITERAL, "User:ann", "*", READ, ALLOW),
    (GROUP, "orders", LITERAL, "User:ann", "*", READ, ALLOW),
    (CLUSTER, "kafka-cluster", LITERAL, "User:ann", "*", 7, ALLOW),
]


def creation(*fields: Any) -> AclCreation:
    return AclCreation(
        **dict(
            zip(
                (
                    "resource_type",
                    "resource_name",
                    "resource_pattern_type",
                    "principal",
                    "host",
                    "operation",
                    "permission_type",
                ),
                fields,
                strict=True,
            )
        )
    )


async def create(wire: Wire, *creations: AclCreation) -> list[int]:
    answer = await wire.ask(CreateAclsRequest(creations=list(creations)), CreateAclsResponse)
    return [result.error_code for result in answer.results]


@pytest.fixture
async def wire(broker: AsyncBroker) -> AsyncIterator[Wire]:
    """Of the superuser; there are no permissions but those of the list above."""
    await broker.app.broker.access.acls.remove(lambda acl: True)
    async with connected(broker, "admin") as admin:
        assert set(await create(admin, *(creation(*fields) for fields in KEPT))) == {0}
        yield admin


def wanted(**fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "resource_type_filter": ANY,
        "pattern_type_filter": ANY,
        "operation": ANY,
        "permission_type": ANY,
    }
    return given | fields


async def found(wire: Wire, **fields: Any) -> set[tuple[Any, ...]]:
    answer = await wire.ask(DescribeAclsRequest(**wanted(**fields)), DescribeAclsResponse)
    assert answer.error_code == 0, answer.error_message
    return {
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }


@pytest.mark.parametrize(
    ("fields", "indexes"),
    [
        ({}, {0, 1, 2, 3, 4, 5, 6}),
        ({"resource_type_filter": TOPIC}, {0, 1, 2, 3, 4}),
        ({"resource_type_filter": TOKEN}, set()),
        ({"pattern_type_filter": LITERAL}, {0, 1, 3, 4, 5, 6}),
        ({"pattern_type_filter": PREFIXED}, {2}),
        ({"resource_name_filter": "orders"}, {0, 1, 5}),
        ({"resource_name_filter": "ord"}, {2}),
        ({"resource_name_filter": "*"}, {3}),
        ({"resource_name_filter": "orders", "pattern_type_filter": LITERAL}, {0, 1, 5}),
        ({"resource_name_filter": "orders", "pattern_type_filter": PREFIXED}, set()),
        ({"resource_name_filter": "orders", "pattern_type_filter": MATCH}, {0, 1, 2, 3, 5}),
        ({"resource_name_filter": "ordersold", "pattern_type_filter": MATCH}, {2, 3, 4}),
        ({"resource_name_filter": "or", "pattern_type_filter": MATCH}, {3}),
        ({"pattern_type_filter": MATCH}, {0, 1, 2, 3, 4, 5, 6}),
        ({"principal_filter": "User:ben"}, {1}),
        ({"principal_filter": "User:be"}, set()),
        ({"host_filter": "10.0.0.1"}, {1}),
        ({"operation": WRITE}, {1, 2}),
        ({"operation": 13}, set()),
        ({"permission_type": DENY}, {1}),
        ({"permission_type": ALLOW, "operation": READ, "resource_type_filter": GROUP}, {5}),
    ],
)
async def test_filters(fields: dict[str, Any], indexes: set[int], wire: Wire, broker: AsyncBroker) -> None:
    expected = {KEPT[index] for index in indexes}
    assert await found(wire, **fields) == expected
    answer = await wire.ask(
        DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted(**fields))]), DeleteAclsResponse
    )
    [result] = answer.filter_results
    assert result.error_code == 0
    assert {
        (
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in result.matching_acls
    } == expected
    assert await found(wire) == set(KEPT) - expected
    assert len(broker.app.broker.access.acls) == len(KEPT) - len(expected)


async def test_acls_of_one_resource_come_together(wire: Wire) -> None:
    answer = await wire.ask(
        DescribeAclsRequest(**wanted(resource_name_filter="orders")), DescribeAclsResponse
    )
    assert sorted(len(resource.acls) for resource in answer.resources) == [1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type_filter": 0},
        {"resource_type_filter": 8},
        {"pattern_type_filter": 0},
        {"pattern_type_filter": 5},
        {"operation": 0},
        {"operation": 16},
        {"permission_type": 0},
        {"permission_type": 4},
    ],
)
async def test_filters_that_mean_nothing(fields: dict[str, Any], wire: Wire) -> None:
    described = await wire.ask(DescribeAclsRequest(**wanted(**fields)), DescribeAclsResponse)
    assert described.error_code == ErrorCode.INVALID_REQUEST
    filters = [DeleteAclsFilter(**wanted(**fields)), DeleteAclsFilter(**wanted(operation=WRITE))]
    deleted = await wire.ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
    assert [each.error_code for each in deleted.filter_results] == [ErrorCode.INVALID_REQUEST, 0]
    assert len(await found(wire)) == len(KEPT) - 2


@pytest.mark.parametrize(
    "fields",
    [
        (TOKEN, "x", LITERAL, "User:ann", "*", READ, ALLOW),
        (ANY, "x", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "x", MATCH, "User:ann", "*", READ, ALLOW),
        (TOPIC, "x", ANY, "User:ann", "*", READ, ALLOW),
        (TOPIC, "x", LITERAL, "Group:ann", "*", READ, ALLOW),
        (TOPIC, "x", LITERAL, "ann", "*", READ, ALLOW),
        (TOPIC, "x", LITERAL, "User:ann", "", READ, ALLOW),
        (TOPIC, "", LITERAL, "User:ann", "*", READ, ALLOW),
        (TOPIC, "x", LITERAL, "User:ann", "*", ANY, ALLOW),
        (TOPIC, "x", LITERAL, "User:ann", "*", 12, ALLOW),
        (GROUP, "x", LITERAL, "User:ann", "*", WRITE, ALLOW),
        (CLUSTER, "x", LITERAL, "User:ann", "*", 7, ALLOW),
        (TOPIC, "x", LITERAL, "User:ann", "*", READ, ANY),
        (TOPIC, "x", LITERAL, "User:ann", "*", READ, 0),
    ],
)
async def test_permissions_that_make_no_sense(fields: tuple[Any, ...], wire: Wire) -> None:
    good = (TOPIC, "good", PREFIXED, "User:*", "*", 2, ALLOW)
    assert await create(wire, creation(*fields), creation(*good)) == [ErrorCode.INVALID_REQUEST, 0]
    assert await found(wire) == {*KEPT, good}


async def test_what_was_created_is_what_is_kept(wire: Wire, broker: AsyncBroker) -> None:
    assert list(broker.app.broker.access.acls)[1] == Acl(
        kind=Kind.TOPIC,
        name="orders",
        pattern=Pattern.LITERAL,
        principal="User:ben",
        host="10.0.0.1",
        operation=Operation.WRITE,
        allow=False,
    )
    assert await create(wire, creation(*KEPT[0])) == [0]
    assert len(broker.app.broker.access.acls) == len(KEPT)


async def test_there_are_none_while_nobody_has_to_log_in() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        described = await wire.ask(DescribeAclsRequest(**wanted()), DescribeAclsResponse)
        assert described.error_code == ErrorCode.SECURITY_DISABLED
        assert await create(wire, creation(*KEPT[0])) == [ErrorCode.SECURITY_DISABLED]
        deleted = await wire.ask(
            DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted())]), DeleteAclsResponse
        )
        assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
