"""All webhooks of a broker: an endpoint for each that is not paused; a changed definition gets a new one."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from random import Random

from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.undisturbed import undisturbed
from posthouse.broker.webhooks.checks import parsed_url
from posthouse.broker.webhooks.definition import Webhook
from posthouse.broker.webhooks.group_members import member_of
from posthouse.broker.webhooks.state import CircuitState, Trial, WebhookState
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.settings import Settings
from posthouse.webhooks.allowed_targets import AllowedTargets
from posthouse.webhooks.attempts import sent
from posthouse.webhooks.circuit import Circuit
from posthouse.webhooks.connecting import Connector, trusting
from posthouse.webhooks.delays import Delays
from posthouse.webhooks.delivery import Delivery, Source
from posthouse.webhooks.endpoint import Endpoint
from posthouse.webhooks.queue_source import QueueSource
from posthouse.webhooks.requests import Request, request_of
from posthouse.webhooks.resolving import Resolve, Resolver
from posthouse.webhooks.sender import Sender
from posthouse.webhooks.tally import Tally
from posthouse.webhooks.topic_source import TopicSource

log = logging.getLogger(__name__)

_LONGEST_CIRCUIT_SECONDS = 300.0
_AGAIN_SECONDS = 5.0
"""After the endpoint of a webhook could not be begun."""


@dataclass(slots=True, kw_only=True)
class _Pushed:
    """One webhook, from its creation to its deletion."""

    created_ms: int
    circuit: Circuit
    """A new one with every definition: who resumes a webhook, or changes its URL, wants it tried at once."""
    tally: Tally = field(default_factory=Tally)
    order: KeyOrder | None = None
    endpoint: Endpoint | None = None
    stopping: asyncio.Task[None] | None = None
    """Of the endpoint."""
    webhook: Webhook | None = None
    """As the endpoint knows it."""
    following: asyncio.Task[None] | None = None
    told: asyncio.Event = field(default_factory=asyncio.Event)
    """The definition has changed."""


class Pushing:
    """Owned by the event loop. Started once, stopped once."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        clock: Clock,
        *,
        random: Random | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        """`resolve` takes the place of the system's resolver. Raises InvalidConfig."""
        self._broker = broker
        self._clock = clock
        self._random = random or Random()
        self._resolver = Resolver()
        self._connector = Connector(
            resolve or self._resolver.addresses,
            AllowedTargets(settings.webhook_allow),
            trusting(settings.webhook_ca),
        )
        self._pushed: dict[str, _Pushed] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Requests under way have a few seconds."""
        pushed, self._pushed = list(self._pushed.values()), {}
        await asyncio.gather(*(self._ended(each) for each in pushed), *self._ending)
        self._resolver.close()

    def changed(self, name: str) -> None:
        webhook = self._broker.webhooks.find(name)
        known = self._pushed.get(name)
        if known is not None and (webhook is None or webhook.created_ms != known.created_ms):
            del self._pushed[name]
            ending = asyncio.create_task(self._ended(known))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            known = None
        if webhook is None:
            return
        if known is None:
            known = self._pushed[name] = _Pushed(
                created_ms=webhook.created_ms, circuit=self._circuit(webhook)
            )
        known.told.set()
        if known.following is None:
            known.following = asyncio.create_task(self._follow(name, known))

    def _circuit(self, webhook: Webhook) -> Circuit:
        first = webhook.retries.first_delay_seconds
        longest = max(min(webhook.retries.longest_delay_seconds, _LONGEST_CIRCUIT_SECONDS), first)
        return Circuit(Delays(first=first, longest=longest), self._random)

    async def _follow(self, name: str, pushed: _Pushed) -> None:
        """Until the endpoint has the definition that the webhook has now."""
        try:
            while (webhook := self._broker.webhooks.find(name)) is not None and webhook != pushed.webhook:
                pushed.told.clear()
                await self._end(pushed)
                try:
                    if webhook.paused is None:
                        await self._begin(webhook, pushed)
                    else:
                        pushed.tally.trouble = None
                    pushed.webhook = webhook
                except PosthouseError as error:
                    pushed.tally.trouble = str(error)
                    log.error("webhook %s: nothing is pushed: %s", name, error)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_AGAIN_SECONDS):
                            await pushed.told.wait()
        finally:
            pushed.following = None

    async def _begin(self, webhook: Webhook, pushed: _Pushed) -> None:
        """Raises Unavailable and InvalidConfig if its secrets cannot be opened."""
        sender = await self._sender(webhook)
        pushed.tally.trouble = None
        pushed.circuit = self._circuit(webhook)
        pushed.endpoint = Endpoint(
            webhook,
            self._source(webhook, pushed),
            sender,
            pushed.circuit,
            pushed.tally,
            self._clock,
            self._random,
            lambda reason: self._broker.webhooks.pause(webhook.name, reason),
        )

    async def _sender(self, webhook: Webhook) -> Sender:
        keys = await self._broker.webhooks.signing_keys(webhook)
        return Sender(parsed_url(webhook.target.url), self._connector, keys, self._clock)

    def _source(self, webhook: Webhook, pushed: _Pushed) -> Source:
        if webhook.topic is None:
            return QueueSource(self._broker, webhook)
        subscriptions = self._broker.subscriptions
        if not webhook.ordered:
            pushed.order = None
        elif pushed.order is None:
            pushed.order = KeyOrder()
        # Nothing is under way: what is leased waits for its next attempt. With a changed definition it is
        # tried at once; and without an order, it would be overtaken.
        subscriptions.release(webhook.group, member_of(webhook), count=None)
        if webhook.group in subscriptions:
            subscriptions.selection_changed(webhook.group)
        return TopicSource(self._broker, webhook, pushed.order)

    async def _end(self, pushed: _Pushed) -> None:
        """If it is cancelled the endpoint is stopped all the same, and the next call waits for that: requests
        must not outlive the webhook."""
        pushed.webhook = None
        if pushed.endpoint is None:
            return
        if pushed.stopping is None:
            pushed.stopping = asyncio.create_task(pushed.endpoint.stop())
        await undisturbed(pushed.stopping)
        pushed.endpoint = pushed.stopping = None

    async def _ended(self, pushed: _Pushed) -> None:
        if pushed.following is not None:
            pushed.following.cancel()
            await asyncio.gather(pushed.following, return_exceptions=True)
        await self._end(pushed)

    async def ended(self) -> None:
        while self._ending:
            await asyncio.wait(self._ending)

    # For operators, and for metrics

    def state(self, name: str) -> WebhookState | None:
        pushed = self._pushed.get(name)
        if pushed is None:
            return None
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        circuit, endpoint = pushed.circuit, pushed.endpoint
        waits = 0.0 if endpoint is None else endpoint.waits_until - now
        is_open = circuit.state is CircuitState.OPEN
        return pushed.tally.state(
            circuit.state,
            circuit_until_ms=now_ms + int(max(circuit.until - now, 0.0) * 1000) if is_open else None,
            waits_until_ms=now_ms + int(waits * 1000) if waits > 0 else None,
        )

    async def test(self, name: str) -> Trial:
        """Raises Unavailable and InvalidConfig if its secrets cannot be opened."""
        webhook = self._broker.webhooks.get(name)
        sender = await self._sender(webhook)
        try:
            outcome = await sent(webhook, sender, self._clock, _made_up(webhook, self._clock.now_ms()))
        finally:
            sender.close()
        return Trial(
            status=outcome.status,
            reason=outcome.reason,
            answer=outcome.shown_body,
            seconds=outcome.seconds,
        )


def _made_up(webhook: Webhook, now_ms: int) -> Request:
    delivery = Delivery(
        place=PartitionId(new_topic_id(), 0),
        offset=0,
        topic=webhook.topic or webhook.queue or "",
        key=b"test",
        value=b'{"test":true}',
        headers=[(b"content-type", b"application/json")],
        timestamp=now_ms,
        attempt=1,
    )
    return request_of(webhook.target.form, [delivery], is_batch=webhook.target.batch > 1)
