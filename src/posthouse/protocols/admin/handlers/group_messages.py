"""Messages of a topic for a group of clients that have only HTTP: taken under a lease, and settled."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Quota
from posthouse.broker.own_settings import Overrides
from posthouse.broker.subscriptions.leases import Verdict
from posthouse.model.errors import InvalidTopicName, UnknownTopic
from posthouse.model.ids import GroupId
from posthouse.model.scopes import scope_of_group
from posthouse.model.topics import Topic, check_topic_name
from posthouse.protocols.admin.consumed_records import BytesEncoding
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.groups import GroupName
from posthouse.protocols.admin.handlers.topics import OfTopic
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.response import Response
from posthouse.protocols.admin.settling import Decision, Settling
from posthouse.protocols.admin.taking import TakenMessages, Taking

_MOST: Final = 1000
_MOST_WAIT_MS: Final = 30_000
_LONGEST_LEASE: Final = 12 * 3600
_USUAL_LEASE: Final = 30
_DEAD_PREFIX: Final = "dlq."
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_BEGIN: Final = "share.auto.offset.reset"
_ISOLATION: Final = "share.isolation.level"
_SETTINGS: Final = frozenset((_DEAD_LETTERS, _BEGIN, _ISOLATION))


class OfTopicGroup(OfTopic, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: GroupName


class TakeWanted(OfTopicGroup, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max: Annotated[int, Meta(ge=1, le=_MOST, description="Most messages of the answer.")] = 10
    wait_ms: Annotated[
        int, Meta(ge=0, le=_MOST_WAIT_MS, description="How long to wait for messages if there are none.")
    ] = 0
    lease_seconds: Annotated[
        int,
        Meta(ge=1, le=_LONGEST_LEASE, description="How long nobody else gets them; then they come again."),
    ] = _USUAL_LEASE
    begin: Annotated[
        Literal["earliest", "latest"],
        Meta(description="Where a new group begins: with what the topic has, or with what comes."),
    ] = "earliest"
    encoding: BytesEncoding = "auto"


Receipts = Annotated[list[str], Meta(max_length=_MOST)]


class SettleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ack: Annotated[Receipts, Meta(description="Done: they do not come again.")] = []
    reject: Annotated[Receipts, Meta(description="They become dead letters.")] = []
    release: Annotated[Receipts, Meta(description="They come again, after `delay_seconds`.")] = []
    extend: Annotated[Receipts, Meta(description="Leased for `lease_seconds` from now on.")] = []
    delay_seconds: Annotated[int, Meta(ge=0, le=_LONGEST_LEASE)] = 0
    lease_seconds: Annotated[int, Meta(ge=1, le=_LONGEST_LEASE)] = _USUAL_LEASE


class RefusedReceipt(msgspec.Struct, frozen=True, kw_only=True):
    receipt: str
    detail: Annotated[str, Meta(description="Mostly that its lease has ended.")]


class SettledMessages(msgspec.Struct, frozen=True, kw_only=True):
    settled: int
    refused: list[RefusedReceipt]


async def _topic(context: CallContext, parameters: OfTopicGroup) -> Topic:
    context.require(Operation.READ, Kind.TOPIC, parameters.topic)
    context.require(Operation.READ, Kind.GROUP, parameters.group)
    return await context.broker.find_topic(parameters.topic)


async def _prepare(context: CallContext, parameters: TakeWanted) -> None:
    """Settings of a new group, which all brokers follow and the coordinator changes."""
    await _topic(context, parameters)
    broker, group = context.broker, GroupId(parameters.group)
    own = broker.group_configs.overrides(group)
    # It may have settings without these: limits may be set before there is a group.
    if own.keys() >= _SETTINGS or await broker.subscriptions.exists(group):
        return
    _check_unused(context, group)
    if _DEAD_LETTERS not in own:
        await _check_dead_letters(context, group)
    wanted = {
        _DEAD_LETTERS: f"{_DEAD_PREFIX}{group}",
        _BEGIN: parameters.begin,
        _ISOLATION: "read_committed",
    }

    def change(own: Overrides) -> Overrides:
        return {**wanted, **own}

    await broker.group_configs.change(group, change)
    context.guard.note("create", f"{Kind.GROUP}:{group}", f"for messages of {parameters.topic}")


async def _check_dead_letters(context: CallContext, group: GroupId) -> None:
    """Raises Problem."""
    name = f"{_DEAD_PREFIX}{group}"
    try:
        check_topic_name(name)
    except InvalidTopicName:
        raise Problem(
            400, f"the group {group[:100]!r} cannot have dead letters: use letters, digits, '.', '_' and '-'"
        ) from None
    try:
        await context.broker.find_topic(name)
    except UnknownTopic:
        return
    # By rejecting messages the user could write to a topic of others.
    context.require(Operation.WRITE, Kind.TOPIC, name)


def _check_unused(context: CallContext, group: GroupId) -> None:
    """Of a group that this broker holds."""
    broker = context.broker
    if group not in broker.subscriptions and broker.holds(scope_of_group(group)) and group in broker.groups:
        raise Problem(
            409,
            f"the group {group!r} has committed offsets, or consumers that commit some; take messages as "
            "another group, or delete this one",
        )


async def _take(context: CallContext, parameters: TakeWanted, body: NoBody) -> TakenMessages | Response:
    topic, group = await _topic(context, parameters), GroupId(parameters.group)
    if group not in context.broker.subscriptions:
        _check_unused(context, group)
        await context.broker.refresh_definitions()  # another broker may have set where it begins
        await context.broker.subscriptions.create(group)
    await context.charge(Quota.READ, 0)
    taking = Taking(
        broker=context.broker,
        topic=topic,
        group=group,
        most=parameters.max,
        lease_seconds=parameters.lease_seconds,
        encoding=parameters.encoding,
    )
    await context.broker.refresh(topic.partition_ids())
    found = await taking.take(0.0)
    if found.messages or not parameters.wait_ms:
        context.debit(Quota.READ, len(msgspec.json.encode(found)))
        return found
    return Response(body=_later(context, taking, parameters.wait_ms / 1000), is_endless=True)


async def _later(context: CallContext, taking: Taking, seconds: float) -> Any:
    async for answer in taking.later(seconds):
        context.debit(Quota.READ, len(answer))
        yield answer


async def _settle(context: CallContext, parameters: OfTopicGroup, body: SettleBody) -> SettledMessages:
    topic, group = await _topic(context, parameters), GroupId(parameters.group)
    delay = body.delay_seconds
    if body.reject and context.broker.group_configs.subscription_rules(group).dead_letters is None:
        raise Problem(
            409,
            f"the group {group!r} has no topic of dead letters, so what it rejects would be lost: set its "
            f"{_DEAD_LETTERS}, or acknowledge the messages; nothing was settled",
        )
    decisions = [
        Decision(receipts=body.ack, verdict=Verdict.ACCEPT),
        Decision(receipts=body.reject, verdict=Verdict.REJECT),
        # Until then nobody gets them, as if they were leased, and nobody works on them.
        Decision(
            receipts=body.release,
            verdict=Verdict.RENEW if delay else Verdict.RELEASE,
            seconds=delay,
            only_waits=delay > 0,
        ),
        Decision(receipts=body.extend, verdict=Verdict.RENEW, seconds=body.lease_seconds),
    ]
    done = await Settling(context.broker.subscriptions, group, topic).settle(decisions)
    if done.refused and not done.count:
        raise next(iter(done.refused.values()))
    return SettledMessages(
        settled=done.count,
        refused=[RefusedReceipt(receipt=each, detail=str(error)) for each, error in done.refused.items()],
    )


GROUP_MESSAGES: Final = (
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/groups/{group}/take",
        summary="Take messages of a topic, which others of the group do not get meanwhile",
        tag="records",
        description="Each message is leased to one client of the group, and comes with a receipt. It is "
        "settled with that, or comes again when the lease is over: at least once. The group is a share "
        "group, which Kafka's consumers can be members of, too. It is made by the first call: messages that "
        "are rejected, or delivered too often, go to the topic `dlq.GROUP`, which the broker creates when "
        "it is needed; if there is one, the first call needs the permission to write to it. With `wait_ms` "
        "the answer waits for messages.",
        before=_prepare,
        scope=lambda parameters: scope_of_group(parameters.group),
        handler=_take,
        parameters=TakeWanted,
        result=TakenMessages,
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/groups/{group}/settle",
        summary="Settle messages that were taken: done, dead, again, or not yet",
        tag="records",
        description="By their receipts. What is settled is durable when this is answered. A receipt whose "
        "lease has ended is refused, and does not stop the others; if all are refused, the answer is a "
        "problem. A group without a topic of dead letters, such as one that Kafka's consumers have made, "
        "rejects nothing: 409.",
        scope=lambda parameters: scope_of_group(parameters.group),
        handler=_settle,
        parameters=OfTopicGroup,
        body=SettleBody,
        result=SettledMessages,
        problems=(404, 409, 413),
    ),
)
