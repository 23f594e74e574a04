"""Quotas of users and client ids: listed and set."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.quotas import DEFAULT, Entity, Quota, Who
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.turns import in_turns

Rate = Annotated[float, Meta(gt=0)]


class QuotaRates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """null is no limit."""

    producer_byte_rate: Annotated[Rate | None, Meta(description="Bytes written a second.")] = None
    consumer_byte_rate: Annotated[Rate | None, Meta(description="Bytes read a second.")] = None
    request_percentage: Annotated[Rate | None, Meta(description="Of the broker's one thread.")] = None


class QuotaView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: Annotated[str | None, Meta(description="The user that it is for.")] = None
    user_default: Annotated[bool, Meta(description="For each user without one; `user` is null.")] = False
    client: Annotated[str | None, Meta(description="The client id that it is for.")] = None
    client_default: Annotated[bool, Meta(description="For each client id without one.")] = False
    rates: QuotaRates

    def entity(self) -> Entity:
        return Entity(
            _who(self.user, self.user_default, "user"), _who(self.client, self.client_default, "client")
        )


def _who(name: str | None, is_default: bool, what: str) -> Who:
    if name is not None and is_default:
        raise Problem(400, f"give {what} or {what}_default, not both")
    return DEFAULT if is_default else name


def view(entity: Entity, rates: dict[Quota, float]) -> QuotaView:
    return QuotaView(
        user=entity.user if isinstance(entity.user, str) else None,
        user_default=entity.user is DEFAULT,
        client=entity.client if isinstance(entity.client, str) else None,
        client_default=entity.client is DEFAULT,
        rates=QuotaRates(
            producer_byte_rate=rates.get(Quota.WRITTEN),
            consumer_byte_rate=rates.get(Quota.READ),
            request_percentage=rates.get(Quota.TIME),
        ),
    )


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[QuotaView]:
    context.require_cluster(Operation.DESCRIBE_CONFIGS)
    found = {
        entity.key().decode(): (entity, dict(rates))
        async for entity, rates in in_turns(list(context.broker.access.quotas))
    }
    return await page_in_turns(found, paging, lambda key: view(*found[key]), sees=lambda key: True)


async def _set(context: CallContext, parameters: msgspec.Struct, body: QuotaView) -> QuotaView:
    context.require_cluster(Operation.ALTER_CONFIGS)
    entity = body.entity()
    entity.check()
    rates = {
        Quota.WRITTEN: body.rates.producer_byte_rate,
        Quota.READ: body.rates.consumer_byte_rate,
        Quota.TIME: body.rates.request_percentage,
    }
    quotas = context.broker.access.quotas
    await quotas.change(entity, rates, validate_only=True)
    told = ", ".join(f"{name}={'none' if rate is None else rate}" for name, rate in rates.items())
    context.guard.note("alter-quota", f"quota:{entity.key().decode()}", told)
    await quotas.change(entity, rates)
    return body


QUOTAS: Final = (
    Endpoint(
        method="GET",
        path="/v1/quotas",
        summary="List quotas",
        tag="access",
        handler=_list,
        parameters=Paging,
        result=Page[QuotaView],
    ),
    Endpoint(
        method="PUT",
        path="/v1/quotas",
        summary="Set the quotas of a user, a client id, or both",
        tag="access",
        handler=_set,
        body=QuotaView,
        result=QuotaView,
    ),
)
