"""Entities of quotas in Kafka's requests: types, each with a name or None for the default."""

from collections.abc import Iterable
from typing import Protocol

from posthouse.broker.access.quotas import DEFAULT, Entity, Who
from posthouse.protocols.kafka.errors import ErrorCode, Refused

USER = "user"
CLIENT_ID = "client-id"
_IP = "ip"


class EntityPart(Protocol):
    entity_type: str
    entity_name: str | None


def entity_of(parts: Iterable[EntityPart]) -> Entity:
    """Raises Refused."""
    found: dict[str, Who] = {}
    for part in parts:
        check_type(part.entity_type, found)
        if part.entity_name == "":
            raise _invalid(f"the name of a {part.entity_type} is empty; send null for the default")
        found[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    if not found:
        raise _invalid("a quota is for a user, a client id, or both")
    return Entity(user=found.get(USER), client=found.get(CLIENT_ID))


def parts_of(entity: Entity) -> list[tuple[str, str | None]]:
    """Types with their names; None is the default."""
    both = ((USER, entity.user), (CLIENT_ID, entity.client))
    return [(kind, who if isinstance(who, str) else None) for kind, who in both if who is not None]


def check_type(kind: str, known: Iterable[str]) -> None:
    """Raises Refused if the type is unknown or was named before."""
    if kind == _IP:
        raise _invalid("addresses have no quotas; the setting max_connections_per_address limits them")
    if kind not in (USER, CLIENT_ID):
        raise _invalid(f"there are no quotas for a {kind!r}, only for a {USER!r} and a {CLIENT_ID!r}")
    if kind in known:
        raise _invalid(f"the type {kind!r} is named more than once")


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, why)
