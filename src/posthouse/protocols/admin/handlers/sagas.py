"""Sagas: how far they are, as their runners have noted it."""

from collections import Counter
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.record_reading import on_a_thread
from posthouse.protocols.admin.saga_states import PREFIX, SUFFIX, KnownSaga, SagaStatus, SagaView, saga_of

_NAME: Final = Meta(min_length=1, max_length=200, description="Name of the saga.")


class OfSaga(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    saga: Annotated[str, _NAME]
    id: Annotated[str, Meta(min_length=1, max_length=800, description="Id that the saga was started with.")]


class SagasWanted(Paging, frozen=True, kw_only=True, forbid_unknown_fields=True):
    saga: Annotated[str, _NAME]
    status: Annotated[SagaStatus | None, Meta(description="Only those with this status.")] = None


class SagaOverview(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sagas: Annotated[dict[str, int], Meta(description="How many there are, by status.")]


class SagaSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: SagaStatus
    step: str | None
    attempt: int
    error: str | None
    started_ms: int
    changed_ms: int
    deadline_ms: int | None


async def _list_all(context: CallContext, parameters: Paging, body: NoBody) -> Page[SagaOverview]:
    names = [
        name
        for topic in context.broker.topics
        if (name := saga_of(topic.name)) is not None
        and context.guard.may(Operation.READ, Kind.TOPIC, topic.name)
    ]
    found = await page_in_turns(names, parameters, lambda name: name, sees=lambda _: True)
    items = []
    for name in found.items:
        states = await _states(context, name)
        counts = Counter(each.status for each in states.values())
        items.append(SagaOverview(name=name, sagas=dict(sorted(counts.items()))))
    return Page(items=items, total=found.total, next=found.next)


async def _list(context: CallContext, parameters: SagasWanted, body: NoBody) -> Page[SagaSummary]:
    states = await _states(context, parameters.saga)
    wanted = parameters.status
    ids = [id for id, each in states.items() if wanted is None or each.status == wanted]
    return await page_in_turns(ids, parameters, lambda id: _summary(states[id]), sees=lambda _: True)


async def _show(context: CallContext, parameters: OfSaga, body: NoBody) -> SagaView:
    topic = _topic(context, parameters.saga)
    view = await context.kept.sagas.view(context.broker, topic, parameters.id, on_a_thread)
    if view is None:
        raise Problem(404, f"saga {parameters.saga!r} has no {parameters.id!r}")
    return view


async def _states(context: CallContext, saga: str) -> dict[str, KnownSaga]:
    return await context.kept.sagas.refreshed(context.broker, _topic(context, saga), on_a_thread)


def _topic(context: CallContext, saga: str) -> Topic:
    name = f"{PREFIX}{saga}{SUFFIX}"
    context.require(Operation.READ, Kind.TOPIC, name)
    topic = context.broker.topics.find(name)
    if topic is None:
        raise Problem(404, f"there is no saga {saga!r}: its runner creates the topic {name!r}")
    return topic


def _summary(state: KnownSaga) -> SagaSummary:
    return SagaSummary(
        id=state.id,
        status=state.status,
        step=state.step,
        attempt=state.attempt,
        error=state.error,
        started_ms=state.started_ms,
        changed_ms=state.changed_ms,
        deadline_ms=state.deadline_ms,
    )


SAGAS: Final = (
    Endpoint(
        method="GET",
        path="/v1/sagas",
        summary="List the kinds of sagas, with how many there are",
        tag="sagas",
        description="Those whose topic of states, `saga.NAME.state`, you may read. At most 100,000 of a kind "
        "are known, in 64 MiB of memory: those that have ended longest ago are left out, then those that "
        "have changed longest ago.",
        handler=_list_all,
        parameters=Paging,
        result=Page[SagaOverview],
    ),
    Endpoint(
        method="GET",
        path="/v1/sagas/{saga}",
        summary="List the sagas of a kind",
        tag="sagas",
        description="By id, with what each is doing.",
        handler=_list,
        parameters=SagasWanted,
        result=Page[SagaSummary],
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/sagas/{saga}/{id}",
        summary="Show a saga, with its input and the results of its steps",
        tag="sagas",
        description="Of a state of more than 256 KiB input and results are left out.",
        handler=_show,
        parameters=OfSaga,
        result=SagaView,
        problems=(404,),
    ),
)
