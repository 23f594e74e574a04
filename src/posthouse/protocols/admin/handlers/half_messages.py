"""Half messages: prepared for a partition, decided, listed and looked at."""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.access.quotas import Quota
from posthouse.broker.half_messages.checks import FIRST_CHECK_SECONDS, LONGEST_FIRST_CHECK
from posthouse.broker.half_messages.half_message import FullName, HalfMessage
from posthouse.broker.half_messages.undecided import Undecided
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.half_checks import HALF_CHECKS, LONGEST_GROUP, Group
from posthouse.protocols.admin.ingest.json_bodies import NewHeader, PartitionNumber
from posthouse.protocols.admin.paging import MOST, Page
from posthouse.protocols.admin.payloads import Payload, SentEncoding, stored
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.record_views import HeaderView, shown_record
from posthouse.protocols.admin.turns import in_turns
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.partitioner import partition_of
from posthouse.records.record import Record

_LONGEST_NAME: Final = 255
_MOST_BODY: Final = 2 * 1024 * 1024
_SHOWN_BYTES: Final = 16 * 1024
"""Of a key, a value or a header."""
_MOST_ID: Final = 2**63 - 1

Id = Annotated[int, Meta(ge=0, le=_MOST_ID, description="Number of the half message.")]
Name = Annotated[
    str, Meta(min_length=1, max_length=_LONGEST_NAME, description="Of the message; unique in its group.")
]


class NewHalfMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    group: Group
    name: Annotated[
        Name | None,
        Meta(description="The same message of a name is prepared once. In AMQP, its message-id."),
    ] = None
    value: Any
    encoding: SentEncoding = "text"
    key: Any = None
    key_encoding: SentEncoding = "text"
    headers: Annotated[list[NewHeader], Meta(max_length=1000)] = []
    partition: Annotated[
        PartitionNumber | None, Meta(description="Chosen by the key if not given, without a key by the name.")
    ] = None
    check_after_seconds: Annotated[
        int, Meta(ge=0, le=LONGEST_FIRST_CHECK, description="When the group is asked for the first time.")
    ] = FIRST_CHECK_SECONDS


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    partition: int


class HalfMessagesWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MOST, description="Most items of the page.")] = 100
    after: Annotated[
        str,
        Meta(pattern=r"^(\d{1,18})?$", description="`next` of the page before, empty for the first."),
    ] = ""
    group: Annotated[str, Meta(description="Only those of this group.")] = ""
    name: Annotated[str, Meta(description="Only those with this name.")] = ""
    topic: Annotated[str, Meta(description="Only those for this topic.")] = ""
    older_than_ms: Annotated[int, Meta(ge=0, description="Only those that have waited so long.")] = 0


class OfHalfMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    half_message: Id


class HalfMessageName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: Group
    name: Name
    namespace: Annotated[str, Meta(description="Virtual host of a message that was prepared by AMQP.")] = (
        DEFAULT_NAMESPACE
    )


class HalfMessageView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    group: str
    name: Annotated[str | None, Meta(description="null if it is decided by its id.")]
    namespace: Annotated[str | None, Meta(description="Virtual host; null if it has no name.")]
    topics: Annotated[list[str], Meta(description="That it is for; of an exchange, its topic.")]
    prepared: Annotated[int, Meta(description="Milliseconds since 1970.")]
    age_ms: int
    checks: Annotated[int, Meta(description="How often producers were asked, since the broker has started.")]


class HalfMessageDetails(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    group: str
    name: str | None
    namespace: str
    topics: list[str]
    exchange: Annotated[str | None, Meta(description="null for a record of a partition.")]
    partition: Annotated[int | None, Meta(description="null for a message that is routed.")]
    prepared: int
    key: Payload | None
    value: Payload | None
    headers: list[HeaderView]
    more_headers: Annotated[int, Meta(description="Headers that there is no room to show.")]


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    outcome: Annotated[str, Meta(description="committed or rolled-back.")]
    routed: Annotated[
        bool, Meta(description="false if no queue takes the message that was committed just now.")
    ] = True


async def _prepare(context: CallContext, parameters: msgspec.Struct, body: NewHalfMessage) -> Prepared:
    context.require(Operation.WRITE, Kind.TOPIC, body.topic)
    half_messages = context.broker.half_messages
    half_messages.check_available()
    for what, text, longest in (
        ("group", body.group, LONGEST_GROUP),
        ("name", body.name or "", _LONGEST_NAME),
    ):
        if len(text.encode()) > longest:
            raise Problem(400, f"the {what} has more than {longest} bytes")
    topic = context.broker.topic(body.topic)
    key = stored(body.key, body.key_encoding, "the key")
    value = stored(body.value, body.encoding, "the value")
    if value is None:
        raise Problem(400, "a half message needs a value; a tombstone cannot be one")
    headers = encode_section(
        [
            (each.name.encode(), stored(each.value, each.encoding, f"header {each.name!r}"))
            for each in body.headers
        ]
    )
    partition = _partition(context, topic, body, key)
    written: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()

    def told(result: int | PosthouseError) -> None:
        if not written.done():
            written.set_result(result)

    half_messages.prepare(
        topic,
        partition,
        key,
        value,
        headers,
        group=body.group,
        name=body.name or "",
        first_check_seconds=body.check_after_seconds,
        stored=told,
    )
    result = await written
    if isinstance(result, PosthouseError):
        raise result
    context.guard.note("prepare", f"{Kind.TOPIC}:{topic.name}", f"half message {result}")
    await context.charge(Quota.WRITTEN, len(value) + len(headers) + len(key or b""))
    return Prepared(id=result, partition=partition)


def _partition(context: CallContext, topic: Topic, body: NewHalfMessage, key: bytes | None) -> int:
    """The same for a message that is prepared again."""
    if body.partition is not None:
        return body.partition
    if key is not None:
        return partition_of(key, topic.partitions)
    if body.name is not None:
        return partition_of(body.name.encode(), topic.partitions)
    return context.broker.now_ms() % topic.partitions


async def _list(context: CallContext, wanted: HalfMessagesWanted, body: NoBody) -> Page[HalfMessageView]:
    half_messages = context.broker.half_messages
    half_messages.check_available()
    sees_all = context.guard.may(Operation.DESCRIBE, Kind.CLUSTER, CLUSTER)
    latest = context.broker.now_ms() - wanted.older_than_ms
    after = int(wanted.after) if wanted.after else -1
    total, more = 0, False
    items: list[HalfMessageView] = []
    async for id in in_turns(list(half_messages)):
        known = half_messages.find(id)
        if known is None or not _matches(known, wanted, latest):
            continue
        if not sees_all and not _may_write(context, known):
            continue
        total += 1
        if id > after:
            if len(items) < wanted.limit:
                items.append(_view(context, id, known))
            else:
                more = True
    return Page(items=items, total=total, next=str(items[-1].id) if more else None)


def _matches(known: Undecided, wanted: HalfMessagesWanted, latest_ms: int) -> bool:
    return (
        known.prepared_ms <= latest_ms
        and wanted.group in ("", known.group)
        and (not wanted.name or (known.name is not None and known.name.name == wanted.name))
        and (not wanted.topic or wanted.topic in known.topics)
    )


def _may_write(context: CallContext, known: Undecided) -> bool:
    return all(context.guard.may(Operation.WRITE, Kind.TOPIC, topic) for topic in known.topics)


def _view(context: CallContext, id: int, known: Undecided) -> HalfMessageView:
    return HalfMessageView(
        id=id,
        group=known.group,
        name=None if known.name is None else known.name.name,
        namespace=None if known.name is None else known.name.namespace,
        topics=list(known.topics),
        prepared=known.prepared_ms,
        age_ms=max(context.broker.now_ms() - known.prepared_ms, 0),
        checks=known.checks,
    )


async def _permitted(context: CallContext, id: int) -> HalfMessage:
    """Who may write to its topics may decide it, and look at it: its producers are asked with all that it
    has."""
    half_messages = context.broker.half_messages
    half_messages.check_available()
    message = await half_messages.message(id)
    for topic in message.topics:
        context.require(Operation.WRITE, Kind.TOPIC, topic)
    return message


async def _show(context: CallContext, parameters: OfHalfMessage, body: NoBody) -> HalfMessageDetails:
    id = parameters.half_message
    message = await _permitted(context, id)
    if context.broker.half_messages.find(id) is None:
        raise Problem(404, f"half message {id} was decided")
    content = message.content
    raw = message.record(id)
    headers = tuple((name.decode(errors="replace"), value) for name, value in decode_section(raw.headers))
    record = Record(offset=id, timestamp=raw.timestamp, key=raw.key, value=raw.value, headers=headers)
    found = shown_record(content.partition or 0, record, _SHOWN_BYTES, context.kept.schemas)
    await context.charge(Quota.READ, found.size)
    return HalfMessageDetails(
        id=id,
        group=message.group,
        name=message.name or None,
        namespace=content.namespace,
        topics=list(message.topics),
        exchange=content.exchange if content.partition is None else None,
        partition=content.partition,
        prepared=message.prepared_ms,
        key=found.view.key,
        value=found.view.value,
        headers=found.view.headers,
        more_headers=found.view.more_headers,
    )


async def _decide(context: CallContext, id: int, *, commit: bool) -> Decided:
    message = await _permitted(context, id)
    half_messages = context.broker.half_messages
    deciding = half_messages.decide(id, group=message.group, commit=commit)
    routed = await undisturbed(deciding)
    outcome = "committed" if commit else "rolled-back"
    for topic in message.topics:
        context.guard.note("commit" if commit else "roll-back", f"{Kind.TOPIC}:{topic}", f"half message {id}")
    return Decided(id=id, outcome=outcome, routed=routed)


async def _commit(context: CallContext, parameters: OfHalfMessage, body: NoBody) -> Decided:
    return await _decide(context, parameters.half_message, commit=True)


async def _roll_back(context: CallContext, parameters: OfHalfMessage, body: NoBody) -> Decided:
    return await _decide(context, parameters.half_message, commit=False)


async def _commit_name(context: CallContext, parameters: msgspec.Struct, body: HalfMessageName) -> Decided:
    return await _decide(context, _id_of(context, body), commit=True)


async def _roll_back_name(context: CallContext, parameters: msgspec.Struct, body: HalfMessageName) -> Decided:
    return await _decide(context, _id_of(context, body), commit=False)


def _id_of(context: CallContext, body: HalfMessageName) -> int:
    half_messages = context.broker.half_messages
    half_messages.check_available()
    name = FullName(body.namespace, body.group, body.name)
    for topic in half_messages.topics_of_name(name):
        context.require(Operation.WRITE, Kind.TOPIC, topic)
    return half_messages.id_of(name)


HALF_MESSAGES: Final = (
    HALF_CHECKS,
    Endpoint(
        method="GET",
        path="/v1/half-messages",
        summary="List the half messages that nobody has decided",
        tag="half-messages",
        description="In the order in which they were prepared: all with describe on the cluster, otherwise "
        "those for topics that you may write to. An application without a connection that the broker could "
        "ask looks here for what its group has left, with `group` and `older_than_ms`.",
        handler=_list,
        parameters=HalfMessagesWanted,
        result=Page[HalfMessageView],
    ),
    Endpoint(
        method="POST",
        path="/v1/half-messages",
        summary="Prepare a half message: on disk, and invisible until it is committed",
        tag="half-messages",
        description="To prepare the same message of a name again is fine, and answered with the same id.",
        handler=_prepare,
        body=NewHalfMessage,
        most_body=_MOST_BODY,
        result=Prepared,
        problems=(404, 409, 413, 507),
    ),
    Endpoint(
        method="GET",
        path="/v1/half-messages/{half_message}",
        summary="Show a half message that nobody has decided",
        tag="half-messages",
        handler=_show,
        parameters=OfHalfMessage,
        result=HalfMessageDetails,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/half-messages/{half_message}/commit",
        summary="Commit a half message: when this is answered, it is visible",
        tag="half-messages",
        description="To commit it again is fine; one that was rolled back, or parked, is refused with 409.",
        handler=_commit,
        parameters=OfHalfMessage,
        result=Decided,
        problems=(404, 409, 413, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/half-messages/{half_message}/rollback",
        summary="Roll a half message back: it is never visible",
        tag="half-messages",
        handler=_roll_back,
        parameters=OfHalfMessage,
        result=Decided,
        problems=(404, 409, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/half-messages/commit",
        summary="Commit the half message of this group and name",
        tag="half-messages",
        handler=_commit_name,
        body=HalfMessageName,
        result=Decided,
        problems=(404, 409, 413, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/half-messages/rollback",
        summary="Roll back the half message of this group and name",
        tag="half-messages",
        handler=_roll_back_name,
        body=HalfMessageName,
        result=Decided,
        problems=(404, 409, 507),
    ),
)
