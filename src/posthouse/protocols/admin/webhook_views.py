"""Webhooks as the JSON API shows them and takes them."""

from dataclasses import replace
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from posthouse.broker.broker import Broker
from posthouse.broker.webhooks.definition import Begin, Form, Retries, Target, Webhook
from posthouse.broker.webhooks.state import CircuitState, Failure, WebhookState
from posthouse.model.scopes import DEFAULT_NAMESPACE

_DEFAULT_TARGET = Target(url="")
_DEFAULT_RETRIES = Retries()

Name = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}$", description="Of the webhook; in its group, too.")
]
Url = Annotated[str, Meta(min_length=1, max_length=2000, description="Where requests are sent: https://….")]
FormName = Annotated[
    Literal["raw", "cloudevents", "cloudevents-binary"],
    Meta(description="The value as the body, a CloudEvent as JSON, or one with attributes as headers."),
]
Filter = Annotated[
    str, Meta(min_length=1, max_length=4096, description="SQL conditions on the headers of records.")
]
Rate = Annotated[float, Meta(ge=0.1, le=1e6, description="Most messages a second.")]
Batch = Annotated[int, Meta(ge=1, le=1000, description="Most messages of one request.")]
Concurrency = Annotated[int, Meta(ge=1, le=256, description="Most requests at a time.")]
Ordered = Annotated[bool, Meta(description="Push messages of one key one after the other.")]
Timeout = Annotated[float, Meta(ge=0.1, le=300, description="Of a whole request.")]
Attempts = Annotated[int, Meta(ge=1, le=1000, description="After so many a message is a dead letter.")]
Delay = Annotated[float, Meta(ge=0.01, le=86_400, description="Of the back-off between attempts.")]
SecretText = Annotated[str, Meta(max_length=200, description="whsec_ and Base64 of 24 to 64 bytes.")]


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    url: Url
    topic: Annotated[str | None, Meta(description="Whose messages are pushed; or a queue.")] = None
    queue: Annotated[str | None, Meta(description="Whose messages are pushed; or a topic.")] = None
    namespace: Annotated[str, Meta(description="Of the queue.")] = DEFAULT_NAMESPACE
    form: FormName = "raw"
    filter: Filter | None = None
    rate: Rate | None = None
    batch: Batch = _DEFAULT_TARGET.batch
    concurrency: Concurrency = _DEFAULT_TARGET.concurrency
    ordered: Ordered = False
    timeout_seconds: Timeout = _DEFAULT_TARGET.timeout_seconds
    max_attempts: Attempts = _DEFAULT_RETRIES.max_attempts
    first_delay_seconds: Delay = _DEFAULT_RETRIES.first_delay_seconds
    longest_delay_seconds: Delay = _DEFAULT_RETRIES.longest_delay_seconds
    begin: Annotated[Literal["latest", "earliest"], Meta(description="Where it begins in its topic.")] = (
        "latest"
    )
    secret: Annotated[SecretText | None, Meta(description="By default the broker makes one.")] = None

    def webhook(self, now_ms: int) -> Webhook:
        return Webhook(
            name=self.name,
            topic=self.topic,
            queue=self.queue,
            namespace=self.namespace,
            target=Target(
                url=self.url,
                form=Form(self.form),
                batch=self.batch,
                concurrency=self.concurrency,
                rate=self.rate,
                timeout_seconds=self.timeout_seconds,
            ),
            filter=self.filter,
            ordered=self.ordered,
            retries=Retries(
                max_attempts=self.max_attempts,
                first_delay_seconds=self.first_delay_seconds,
                longest_delay_seconds=self.longest_delay_seconds,
            ),
            begin=Begin(self.begin),
            created_ms=now_ms,
            secrets=(),
        )


class WebhookChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    url: Url | UnsetType = UNSET
    form: FormName | UnsetType = UNSET
    filter: Filter | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    batch: Batch | UnsetType = UNSET
    concurrency: Concurrency | UnsetType = UNSET
    ordered: Ordered | UnsetType = UNSET
    timeout_seconds: Timeout | UnsetType = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    first_delay_seconds: Delay | UnsetType = UNSET
    longest_delay_seconds: Delay | UnsetType = UNSET

    def changed(self, webhook: Webhook) -> Webhook:
        given = {
            each: getattr(self, each) for each in self.__struct_fields__ if getattr(self, each) is not UNSET
        }
        if "form" in given:
            given["form"] = Form(given["form"])
        of_target = {each: given.pop(each) for each in Target.__slots__ if each in given}
        of_retries = {each: given.pop(each) for each in Retries.__slots__ if each in given}
        return replace(
            webhook,
            target=replace(webhook.target, **of_target),
            retries=replace(webhook.retries, **of_retries),
            **given,
        )


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    at: Annotated[int, Meta(description="Milliseconds since 1970.")]
    reason: str
    status: Annotated[int | None, Meta(description="null if there was no answer.")]
    answer: Annotated[str, Meta(description="The beginning of its body.")]


class StateView(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers are those since the broker has started."""

    circuit: Annotated[
        Literal["closed", "open", "half-open"], Meta(description="Open while the endpoint seems to be down.")
    ]
    tried_again: Annotated[
        int | None, Meta(description="When an open circuit sends again, or Retry-After is over.")
    ]
    in_flight: int
    delivered: Annotated[int, Meta(description="Messages.")]
    retried: int
    dead_letters: int
    requests: int
    failed_requests: int
    success_rate: Annotated[float | None, Meta(description="Of the last 100 requests, from 0 to 1.")]
    last_success: int | None
    last_failure: FailureView | None
    trouble: Annotated[str | None, Meta(description="Why nothing is pushed at all.")]


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    topic: str | None
    queue: str | None
    namespace: str
    group: Annotated[str | None, Meta(description="That has its progress in the topic.")]
    form: str
    filter: str | None
    rate: float | None
    batch: int
    concurrency: int
    ordered: bool
    timeout_seconds: float
    max_attempts: int
    first_delay_seconds: float
    longest_delay_seconds: float
    dead_letter_topic: Annotated[
        str, Meta(description="Dead letters of a queue that has a dead-letter exchange go there instead.")
    ]
    created: int
    paused: Annotated[str | None, Meta(description="Why; null if it is not.")]
    secrets: Annotated[int, Meta(description="That requests are signed with: several after a rotation.")]
    lag: Annotated[int, Meta(description="Messages that are not delivered yet.")]
    state: Annotated[StateView | None, Meta(description="null while it is begun.")]


def view(broker: Broker, webhook: Webhook) -> WebhookView:
    target, retries, now = webhook.target, webhook.retries, broker.now_ms()
    state = broker.webhooks.state(webhook.name)
    return WebhookView(
        name=webhook.name,
        url=target.url,
        topic=webhook.topic,
        queue=webhook.queue,
        namespace=webhook.namespace,
        group=webhook.group if webhook.topic is not None else None,
        form=target.form,
        filter=webhook.filter,
        rate=target.rate,
        batch=target.batch,
        concurrency=target.concurrency,
        ordered=webhook.ordered,
        timeout_seconds=target.timeout_seconds,
        max_attempts=retries.max_attempts,
        first_delay_seconds=retries.first_delay_seconds,
        longest_delay_seconds=retries.longest_delay_seconds,
        dead_letter_topic=webhook.dead_letters,
        created=webhook.created_ms,
        paused=webhook.paused,
        secrets=sum(each.valid_until_ms is None or each.valid_until_ms > now for each in webhook.secrets),
        lag=broker.webhooks.lag(webhook),
        state=None if state is None else _state(state),
    )


def _state(state: WebhookState) -> StateView:
    failure = state.last_failure
    waits = [each for each in (state.circuit_until_ms, state.waits_until_ms) if each is not None]
    return StateView(
        circuit=_CIRCUITS[state.circuit],
        tried_again=max(waits, default=None),
        in_flight=state.in_flight,
        delivered=state.delivered,
        retried=state.retried,
        dead_letters=state.dead,
        requests=state.requests,
        failed_requests=state.failed_requests,
        success_rate=state.success_rate,
        last_success=state.last_success_ms,
        last_failure=None if failure is None else _failure(failure),
        trouble=state.trouble,
    )


def _failure(failure: Failure) -> FailureView:
    return FailureView(at=failure.at_ms, reason=failure.reason, status=failure.status, answer=failure.answer)


_CIRCUITS: dict[CircuitState, Literal["closed", "open", "half-open"]] = {
    CircuitState.CLOSED: "closed",
    CircuitState.OPEN: "open",
    CircuitState.HALF_OPEN: "half-open",
}
