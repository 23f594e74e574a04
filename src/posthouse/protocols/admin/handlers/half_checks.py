"""Checks of half messages: producers ask which they are to decide, and are answered when there are some."""

from base64 import b64encode
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.quotas import Quota
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.model.errors import DataDamaged, UnknownTransaction
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.records.header_section import decode_section

LONGEST_GROUP: Final = 200
_MOST_CHECKS: Final = 100
_LONGEST_WAIT_MS: Final = 5000
"""Short: a broker that stops waits for it."""
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of the messages of an answer; the first one may exceed it."""

Group = Annotated[str, Meta(min_length=1, max_length=LONGEST_GROUP, description="Group of producers.")]
Base64 = Annotated[str | None, Meta(description="In base64; null if there is none.")]


class ChecksWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: Group
    wait_ms: Annotated[
        int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for the first one.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST_CHECKS, description="Most checks of the answer.")] = 10


class CheckedHeader(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Base64


class Check(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[int, Meta(description="Number of the half message.")]
    name: Annotated[str | None, Meta(description="null if it has none.")]
    topics: Annotated[list[str], Meta(description="That it is for; of an exchange, its topic.")]
    prepared: Annotated[int, Meta(description="Milliseconds since 1970.")]
    key: Base64
    value: Base64
    headers: list[CheckedHeader]


class ChecksFound(msgspec.Struct, frozen=True, kw_only=True):
    checks: list[Check]


async def _take(context: CallContext, wanted: ChecksWanted, body: NoBody) -> ChecksFound:
    half_messages, half_checks = context.broker.half_messages, context.kept.half_checks
    half_messages.check_available()
    ids = await half_checks.take(
        wanted.group, context.guard, most=wanted.limit, seconds=wanted.wait_ms / 1000
    )
    checks: list[Check] = []
    size = 0
    for id in ids:
        try:
            message = await half_messages.message(id)
        except (UnknownTransaction, DataDamaged):
            continue  # decided meanwhile; of damage the broker's log tells
        if checks and size + message.size > _MOST_BYTES:
            half_checks.give_back(id, message)
            continue
        size += message.size
        half_messages.was_taken(id)
        checks.append(_check(id, message))
    await context.charge(Quota.READ, size)
    return ChecksFound(checks=checks)


def _check(id: int, message: HalfMessage) -> Check:
    record = message.record(id)
    headers = [
        CheckedHeader(name=name.decode(errors="replace"), value=_base64(value))
        for name, value in decode_section(record.headers)
    ]
    return Check(
        id=id,
        name=message.name or None,
        topics=list(message.topics),
        prepared=message.prepared_ms,
        key=_base64(record.key),
        value=_base64(record.value),
        headers=headers,
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


HALF_CHECKS: Final = Endpoint(
    method="GET",
    path="/v1/half-messages/checks/{group}",
    summary="Take the half messages that a producer of a group is to decide, or wait for them",
    tag="half-messages",
    description="Who asks counts as a connected producer of the group while the call waits, and for 10 s "
    "after that. A message is given to one producer, when its first check is due and every 30 s until it "
    "is decided; what was due while the group had no producer comes within a second or two. Only messages "
    "for topics that you may write to.",
    handler=_take,
    parameters=ChecksWanted,
    result=ChecksFound,
)
