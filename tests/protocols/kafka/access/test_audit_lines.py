"""What Kafka's requests leave in the audit log: who did what, and nothing secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from posthouse.protocols.kafka.codec.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
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
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.roles import PASSWORD
from tests.protocols.kafka.access.scene import add_roles, connected, log_in, secured
from tests.protocols.kafka.access.test_scram_apis import alter, deletion, upsertion
from tests.protocols.kafka.wire import Wire, batch

_SECRET = "very secret"


async def say_everything(broker: AsyncBroker) -> None:
    async with connected(broker, "admin") as wire:
        topic = await wire.create_topic("t")
        change = upsertion("ann", _SECRET)
        await alter(wire, change)
        await alter(wire, deletion("ann"))
        await alter(wire, upsertion("ben", _SECRET, iterations=1))
        acl = AclCreation(
            resource_type=2,
            resource_name="t",
            principal="User:ann",
            host="*",
            operation=3,
            permission_type=3,
        )
        await wire.ask(CreateAclsRequest(creations=[acl]), CreateAclsResponse)
        meant = DeleteAclsFilter(
            resource_type_filter=2, principal_filter="User:ann", operation=1, permission_type=1
        )
        await wire.ask(DeleteAclsRequest(filters=[meant]), DeleteAclsResponse)
        entry = RequestEntryData(
            entity=[EntityData(entity_type="user", entity_name="ann"), EntityData(entity_type="client-id")],
            ops=[OpData(key="producer_byte_rate", value=10.0)],
        )
        await wire.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    async with connected(broker, "reader") as wire:
        for _ in range(3):
            await wire.produce(topic, batch(b"what nobody else may know"))
        await wire.fetch(topic)
    async with Wire(broker.kafka) as wire:
        with pytest.raises(AssertionError):
            await log_in(wire, "admin", "a wrong guess")


async def test_lines(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with secured(tmp_path, data=data) as broker:
        await add_roles(broker.app.broker)
        await say_everything(broker)
    text = (data / "audit.log").read_text()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    told = {(each["principal"], each["action"], each["resource"], each["allowed"]) for each in lines}
    assert told == {
        ("User:admin", "login", "PLAIN", True),
        ("User:admin", "login", "PLAIN", False),
        ("User:reader", "login", "PLAIN", True),
        ("User:admin", "create", "topic:t", True),
        ("User:admin", "alter", "cluster:kafka-cluster", True),
        ("User:admin", "alter-configs", "cluster:kafka-cluster", True),
        ("User:admin", "set-credential", "user:ann", True),
        ("User:admin", "delete-credential", "user:ann", True),
        ("User:admin", "create-acl", "topic:t", True),
        ("User:admin", "delete-acl", "topic:t", True),
        ("User:admin", "alter-quota", "quota:user='ann',client-id=default", True),
        ("User:reader", "write", "topic:t", False),
    }
    assert sum(each.get("count", 1) for each in lines if each["action"] == "write") == 3
    assert all(each["peer"].startswith("127.0.0.1:") and each["protocol"] == "kafka" for each in lines)
    for secret in (_SECRET, PASSWORD, "a wrong guess", "some salt", "nobody else may know"):
        assert secret not in text
    assert (data / "audit.log").stat().st_mode & 0o077 == 0
