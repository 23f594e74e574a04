"""Quotas of a broker: rate limits of users and client ids."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import refused
from posthouse.protocols.kafka.codec.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from posthouse.protocols.kafka.codec.generated.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_USER = "user"
_CLIENT = "client-id"


class QuotaName(StrEnum):
    """The protocol's names."""

    WRITE = "producer_byte_rate"
    """Bytes a second."""
    READ = "consumer_byte_rate"
    """Bytes a second."""
    TIME = "request_percentage"
    """Percentage of the time of one processor."""


class DefaultEntity(Enum):
    """All users or clients without a quota of their own."""

    DEFAULT = "default"


DEFAULT: Final = DefaultEntity.DEFAULT
Who = str | DefaultEntity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    user: Who = None
    client: Who = None

    def __str__(self) -> str:
        return ", ".join(
            f"every {kind} without a quota of its own" if who is DEFAULT else f"{kind} {who!r}"
            for kind, who in (("user", self.user), ("client", self.client))
            if who is not None
        )


def list_quotas(connection: BrokerConnection) -> dict[QuotaEntity, dict[QuotaName, float]]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    response = connection.ask(request, DescribeClientQuotasResponse)
    if response.error_code:
        raise refused(response.error_code, response.error_message, "", needs="describe-configs")
    known = {str(quota) for quota in QuotaName}
    found = {}
    for entry in response.entries or ():
        names: dict[str, Who] = {
            each.entity_type: DEFAULT if each.entity_name is None else each.entity_name
            for each in entry.entity
        }
        entity = QuotaEntity(user=names.get(_USER), client=names.get(_CLIENT))
        found[entity] = {QuotaName(each.key): each.value for each in entry.values if each.key in known}
    return found


def change_quotas(
    connection: BrokerConnection, entity: QuotaEntity, changes: Mapping[QuotaName, float | None]
) -> None:
    """Change quotas; None removes one."""
    operations = [
        OpData(key=quota, value=0.0 if value is None else value, remove=value is None)
        for quota, value in changes.items()
    ]
    entry = RequestEntryData(
        entity=[
            EntityData(entity_type=kind, entity_name=None if who is DEFAULT else who)
            for kind, who in ((_USER, entity.user), (_CLIENT, entity.client))
            if who is not None
        ],
        ops=operations,
    )
    response = connection.ask(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for result in response.entries:
        if result.error_code:
            raise refused(result.error_code, result.error_message, str(entity), needs="alter-configs")
