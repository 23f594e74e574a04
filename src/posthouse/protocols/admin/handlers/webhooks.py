"""Webhooks: created, listed, changed, paused, replayed and tried. Secrets are shown when they are made."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.names import topic_name
from posthouse.broker.webhooks.definition import Webhook
from posthouse.broker.webhooks.secret_texts import parsed_secret, shown_secret
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.offset_targets import OffsetTarget, TargetKind
from posthouse.protocols.admin.paging import Page, Paging, page
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.webhook_views import (
    Name,
    NewWebhook,
    SecretText,
    WebhookChange,
    WebhookView,
    view,
)

_DAY_SECONDS: Final = 86_400
_LONGEST_VALID_SECONDS: Final = 30 * _DAY_SECONDS


class OfWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    webhook: Name


class CreatedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    secret: Annotated[str, Meta(description="It is not shown again.")]


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(min_length=1, max_length=200, description="For other operators.")] = (
        "paused by an operator"
    )


class RotateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    secret: Annotated[SecretText | None, Meta(description="By default the broker makes one.")] = None
    valid_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=_LONGEST_VALID_SECONDS,
            description="How long requests are signed with the secrets before, too.",
        ),
    ] = _DAY_SECONDS


class ReplayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Annotated[
        str, Meta(description="earliest, time:2026-01-31T12:00Z or duration:PT1H (so long ago).")
    ]


class ReplayedPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: int


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: list[ReplayedPartition]


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    status: Annotated[int | None, Meta(description="null if there was no answer.")]
    reason: str
    answer: Annotated[str, Meta(description="The beginning of its body.")]
    seconds: float


def _require(context: CallContext, webhook: Webhook) -> None:
    """Who makes the broker send messages elsewhere must be allowed to read them."""
    context.require_cluster(Operation.ALTER)
    context.require(Operation.READ, *_resource(webhook))


def _resource(webhook: Webhook) -> tuple[Kind, str]:
    if webhook.topic is not None:
        return Kind.TOPIC, webhook.topic
    return Kind.TOPIC, topic_name(webhook.namespace, webhook.queue or "")


def _note(context: CallContext, action: str, webhook: Webhook) -> None:
    kind, name = _resource(webhook)
    context.guard.note(action, f"{kind}:{name}", f"webhook {webhook.name}")


def _known(context: CallContext, name: str) -> Webhook:
    context.require_cluster(Operation.ALTER)  # first: who may not must not learn which there are
    webhooks = context.broker.webhooks
    webhooks.check_available()
    webhook = webhooks.get(name)
    _require(context, webhook)
    return webhook


async def _create(context: CallContext, parameters: msgspec.Struct, body: NewWebhook) -> CreatedWebhook:
    webhook = body.webhook(context.broker.now_ms())
    _require(context, webhook)
    secret = None if body.secret is None else parsed_secret(body.secret)
    made = await context.broker.webhooks.create(webhook, secret)
    _note(context, "create-webhook", webhook)
    return CreatedWebhook(name=webhook.name, secret=shown_secret(made))


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[WebhookView]:
    context.require_cluster(Operation.DESCRIBE)
    broker = context.broker
    broker.webhooks.check_available()
    names = [each.name for each in broker.webhooks.all()]
    return page(names, paging, lambda name: view(broker, broker.webhooks.get(name)))


async def _show(context: CallContext, parameters: OfWebhook, body: NoBody) -> WebhookView:
    context.require_cluster(Operation.DESCRIBE)
    context.broker.webhooks.check_available()
    return view(context.broker, context.broker.webhooks.get(parameters.webhook))


async def _change(context: CallContext, parameters: OfWebhook, body: WebhookChange) -> WebhookView:
    webhook = _known(context, parameters.webhook)
    changed = await context.broker.webhooks.change(webhook.name, body.changed)
    _note(context, "change-webhook", webhook)
    return view(context.broker, changed)


async def _delete(context: CallContext, parameters: OfWebhook, body: NoBody) -> None:
    webhook = _known(context, parameters.webhook)
    await context.broker.webhooks.delete(webhook.name)
    _note(context, "delete-webhook", webhook)


async def _pause(context: CallContext, parameters: OfWebhook, body: PauseBody) -> None:
    webhook = _known(context, parameters.webhook)
    await context.broker.webhooks.pause(webhook.name, body.reason)
    _note(context, "pause-webhook", webhook)


async def _resume(context: CallContext, parameters: OfWebhook, body: NoBody) -> None:
    webhook = _known(context, parameters.webhook)
    await context.broker.webhooks.resume(webhook.name)
    _note(context, "resume-webhook", webhook)


async def _rotate(context: CallContext, parameters: OfWebhook, body: RotateBody) -> CreatedWebhook:
    webhook = _known(context, parameters.webhook)
    secret = None if body.secret is None else parsed_secret(body.secret)
    made = await context.broker.webhooks.rotate(
        webhook.name, valid_ms=body.valid_seconds * 1000, secret=secret
    )
    _note(context, "rotate-webhook", webhook)
    return CreatedWebhook(name=webhook.name, secret=shown_secret(made))


async def _replay(context: CallContext, parameters: OfWebhook, body: ReplayBody) -> Replay:
    webhook = _known(context, parameters.webhook)
    target = OffsetTarget.parse(body.since, context.broker.now_ms())
    if target.kind not in (TargetKind.EARLIEST, TargetKind.TIME):
        raise Problem(400, "a webhook is replayed since earliest, time:2026-01-31T12:00Z or duration:PT1H")
    since_ms = 0 if target.kind is TargetKind.EARLIEST else target.number
    offsets = await context.broker.webhooks.replay(webhook.name, since_ms)
    _note(context, "replay-webhook", webhook)
    return Replay(
        topic=webhook.topic or "",
        partitions=[
            ReplayedPartition(partition=partition.index, offset=offset)
            for partition, offset in sorted(offsets.items(), key=lambda each: each[0].index)
        ],
    )


async def _test(context: CallContext, parameters: OfWebhook, body: NoBody) -> TrialView:
    webhook = _known(context, parameters.webhook)
    trial = await context.broker.webhooks.test(webhook.name)
    _note(context, "test-webhook", webhook)
    return TrialView(
        status=trial.status, reason=trial.reason, answer=trial.answer, seconds=round(trial.seconds, 6)
    )


WEBHOOKS: Final = (
    Endpoint(
        method="GET",
        path="/v1/webhooks",
        summary="List webhooks, with what became of their requests",
        tag="webhooks",
        handler=_list,
        parameters=Paging,
        result=Page[WebhookView],
    ),
    Endpoint(
        method="POST",
        path="/v1/webhooks",
        summary="Create a webhook: messages of a topic or a queue are pushed to a URL",
        tag="webhooks",
        description="Requests are signed as Standard Webhooks says. The secret is in this answer only.",
        handler=_create,
        body=NewWebhook,
        result=CreatedWebhook,
        problems=(404, 409, 413, 507),
    ),
    Endpoint(
        method="GET",
        path="/v1/webhooks/{webhook}",
        summary="Show a webhook, with what became of its requests",
        tag="webhooks",
        handler=_show,
        parameters=OfWebhook,
        result=WebhookView,
        problems=(404,),
    ),
    Endpoint(
        method="PATCH",
        path="/v1/webhooks/{webhook}",
        summary="Change a webhook",
        tag="webhooks",
        description="What is left out stays as it is. Its progress stays, too: an open circuit is closed.",
        handler=_change,
        parameters=OfWebhook,
        body=WebhookChange,
        result=WebhookView,
        problems=(404, 413, 507),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/webhooks/{webhook}",
        summary="Delete a webhook and its progress",
        tag="webhooks",
        handler=_delete,
        parameters=OfWebhook,
        problems=(404, 409, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/webhooks/{webhook}/pause",
        summary="Pause a webhook: messages wait",
        tag="webhooks",
        handler=_pause,
        parameters=OfWebhook,
        body=PauseBody,
        problems=(404, 413, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/webhooks/{webhook}/resume",
        summary="Resume a webhook: it is tried at once",
        tag="webhooks",
        handler=_resume,
        parameters=OfWebhook,
        problems=(404, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/webhooks/{webhook}/rotate",
        summary="Give a webhook another secret",
        tag="webhooks",
        description="For a while requests carry the signatures of both, so that receivers can follow.",
        handler=_rotate,
        parameters=OfWebhook,
        body=RotateBody,
        result=CreatedWebhook,
        problems=(404, 413, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/webhooks/{webhook}/replay",
        summary="Push again what was written since a time",
        tag="webhooks",
        description="Only of a topic. Messages keep their ids: receivers that remember them drop what they "
        "had before.",
        handler=_replay,
        parameters=OfWebhook,
        body=ReplayBody,
        result=Replay,
        problems=(404, 413, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/webhooks/{webhook}/test",
        summary="Send a made-up message now, and say what the endpoint answered",
        tag="webhooks",
        handler=_test,
        parameters=OfWebhook,
        result=TrialView,
        problems=(404,),
    ),
)
