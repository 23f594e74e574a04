"""Pushes the messages of one webhook: takes them from their source as far as there are free requests, sends
them, and tells the source what became of them.

Endpoints know nothing of each other. One that hangs has its own requests, its own connections and its own
leases, and costs the others nothing.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from random import Random
from typing import Final

from posthouse.broker.access.token_bucket import TokenBucket
from posthouse.broker.queues.record_headers import WEBHOOK
from posthouse.broker.webhooks.definition import Webhook
from posthouse.broker.webhooks.state import CircuitState, Failure
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.webhooks.answers import Verdict
from posthouse.webhooks.attempts import Outcome, attempt
from posthouse.webhooks.circuit import Circuit
from posthouse.webhooks.delays import Delays
from posthouse.webhooks.delivery import Delivery, Source
from posthouse.webhooks.sender import Sender
from posthouse.webhooks.tally import Tally

log = logging.getLogger(__name__)

_AHEAD: Final = 64
"""Requests whose messages are leased before they can be sent."""
_POLL_SECONDS: Final = 20.0
_TROUBLE_SECONDS: Final = 1.0
"""After storage, or what the webhook reads from, has failed."""
_SPARE_LOCK_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_GONE_SECONDS: Final = 60.0
"""Nothing is sent while the webhook is paused for that. If this cannot be stored, another message is sent."""

_BROKEN: Final = Outcome(
    verdict=Verdict.FAILED, reason="the broker failed; its log has the reason", answer=None, seconds=0.0
)

Pause = Callable[[str], Awaitable[None]]
"""Pause the webhook, for this reason."""


class Endpoint:
    """Owned by the event loop. Started once, stopped once."""

    def __init__(
        self,
        webhook: Webhook,
        source: Source,
        sender: Sender,
        circuit: Circuit,
        tally: Tally,
        clock: Clock,
        random: Random,
        pause: Pause,
    ) -> None:
        self._webhook = webhook
        self._source = source
        self._sender = sender
        self._circuit = circuit
        self._tally = tally
        self._clock = clock
        self._random = random
        self._pause = pause
        target, retries = webhook.target, webhook.retries
        self._delays = Delays(first=retries.first_delay_seconds, longest=retries.longest_delay_seconds)
        self._bucket = None if target.rate is None else TokenBucket(target.rate, clock.monotonic())
        self._ahead: deque[Delivery] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        """A request has ended."""
        self.waits_until = 0.0
        """The endpoint has asked for it, by Retry-After."""
        self._is_stopped = False
        self._run = asyncio.create_task(self._push_all(), name=f"webhook {webhook.name}")

    async def stop(self) -> None:
        """Requests under way have a few seconds; what they were about comes again otherwise."""
        self._is_stopped = True
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)
        self._give_back()
        if self._requests:
            await asyncio.wait(self._requests, timeout=_STOP_SECONDS)
        for request in list(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        await self._source.close()
        self._sender.close()

    async def _push_all(self) -> None:
        while not self._is_stopped:  # also if what it waited for has swallowed the cancellation
            try:
                await self._push()
            except PosthouseError as error:
                self._tally.trouble = str(error)
                await asyncio.sleep(_TROUBLE_SECONDS)
            except Exception:
                log.exception("webhook %s: failed, retrying in %s s", self._webhook.name, _TROUBLE_SECONDS)
                self._tally.trouble = "the broker failed; its log has the reason"
                await asyncio.sleep(_TROUBLE_SECONDS)

    async def _push(self) -> None:
        """One request, once it may begin."""
        await self._cleared()
        if not self._ahead:
            for each in await self._source.take(self._most_ahead, _POLL_SECONDS, self._lock_seconds):
                if each.unreadable is None:
                    self._ahead.append(each)
                else:
                    self._bury_unreadable(each, each.unreadable)
            self._tally.trouble = None
            return
        while len(self._requests) >= self._webhook.target.concurrency:
            await self._request_ended()
        batch = self._next_batch()
        if self._bucket is not None and (delay := self._bucket.take(len(batch), self._clock.monotonic())):
            await asyncio.sleep(delay)
        is_probe = None if self._is_waiting else self._circuit.begin(self._clock.monotonic())
        if is_probe is None:
            return  # a request has failed meanwhile
        for _ in batch:
            self._ahead.popleft()
        request = asyncio.create_task(self._deliver(batch, is_probe=is_probe))
        self._requests.add(request)
        request.add_done_callback(self._done)

    @property
    def _most_ahead(self) -> int:
        target = self._webhook.target
        most = max(_AHEAD, target.concurrency) * target.batch
        return most if target.rate is None else max(min(most, int(target.rate)), 1)

    @property
    def _lock_seconds(self) -> float:
        """Long enough for all that is ahead, if every request takes as long as it may."""
        target = self._webhook.target
        rounds = ceil(max(_AHEAD, target.concurrency) / target.concurrency) + 1
        paced = 0.0 if target.rate is None else self._most_ahead / target.rate
        return rounds * target.timeout_seconds + paced + _SPARE_LOCK_SECONDS

    # Waiting

    @property
    def _is_waiting(self) -> bool:
        return self.waits_until > self._clock.monotonic()

    async def _cleared(self) -> None:
        """Return when a request may begin, as far as the endpoint is concerned. While it may not, no messages
        are leased: the leases would end."""
        while True:
            now = self._clock.monotonic()
            wait = self._circuit.wait(now)
            if wait is not None and (wait := max(wait, self.waits_until - now)) <= 0:
                return
            self._give_back()
            await self._request_ended(wait)

    async def _request_ended(self, seconds: float | None = None) -> None:
        """Or the time is over."""
        self._ended.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _give_back(self) -> None:
        if self._ahead:
            self._source.give_back(list(self._ahead))
            self._ahead.clear()

    def _next_batch(self) -> list[Delivery]:
        """A message that was sent before is alone: what is wrong with it must not hold up others."""
        first = self._ahead[0]
        if first.attempt > 1:
            return [first]
        batch: list[Delivery] = []
        for each in self._ahead:
            if each.attempt > 1 or len(batch) >= self._webhook.target.batch:
                break
            batch.append(each)
        return batch

    # Requests

    async def _deliver(self, batch: Sequence[Delivery], *, is_probe: bool) -> None:
        self._tally.in_flight += 1
        try:
            outcome = await attempt(self._webhook, self._sender, self._clock, batch)
        except Exception:
            # A mistake of ours that may come again with every attempt: it must not be tried again at once.
            log.exception("webhook %s: a request failed in the broker", self._webhook.name)
            outcome = _BROKEN
        except BaseException:  # cancelled
            self._circuit.given_up()
            self._source.give_back(batch)
            raise
        finally:
            self._tally.in_flight -= 1
        if outcome.answer is not None:
            self._tally.answered(outcome.seconds)
        if outcome.verdict is Verdict.DELIVERED:
            if is_probe:
                log.info("webhook %s: its endpoint works again", self._webhook.name)
            self._circuit.succeeded()
            self._tally.succeeded(len(batch), self._clock.now_ms())
            self._source.delivered(batch)
            return
        self._tally.failed(
            Failure(
                at_ms=self._clock.now_ms(),
                reason=outcome.reason,
                status=outcome.status,
                answer=outcome.shown_body,
            )
        )
        if outcome.verdict is Verdict.FAILED:
            self._failed(batch, outcome, is_probe=is_probe)
        elif outcome.verdict is Verdict.REFUSED:
            self._refused(batch, outcome)
        else:
            self._circuit.succeeded()
            self.waits_until = self._clock.monotonic() + _GONE_SECONDS
            self._source.give_back(batch)
            await self._pause(outcome.reason)

    def _failed(self, batch: Sequence[Delivery], outcome: Outcome, *, is_probe: bool) -> None:
        now = self._clock.monotonic()
        was_closed = self._circuit.state is CircuitState.CLOSED
        self._circuit.failed(now, is_probe=is_probe)
        if was_closed and self._circuit.state is not CircuitState.CLOSED:
            log.warning("webhook %s: its endpoint seems to be down: %s", self._webhook.name, outcome.reason)
        self.waits_until = max(self.waits_until, now + outcome.wait_seconds)
        # An endpoint that is down for days is probed all the time: that must not use up the attempts.
        counts = not is_probe or outcome.answer is not None
        for each in batch:
            if counts and each.attempt >= self._webhook.retries.max_attempts:
                self._bury(each, outcome)
            else:
                delay = max(self._delays.after(each.attempt, self._random), outcome.wait_seconds)
                self._tally.retried += 1
                self._source.retry([each], delay, counts=counts)

    def _refused(self, batch: Sequence[Delivery], outcome: Outcome) -> None:
        """Of several messages one may be refused: each is tried alone."""
        self._circuit.succeeded()
        if len(batch) == 1:
            self._bury(batch[0], outcome)
            return
        self._tally.retried += len(batch)
        self._source.retry(batch, 0.0, counts=True)

    def _bury(self, delivery: Delivery, outcome: Outcome) -> None:
        self._tally.dead += 1
        self._source.bury(delivery, outcome.notes(self._webhook.name, delivery.attempt))

    def _bury_unreadable(self, delivery: Delivery, why: str) -> None:
        name, place = self._webhook.name, f"{delivery.topic}-{delivery.place.index}"
        reason = f"records of {place} from offset {delivery.offset} on cannot be decoded: {why}"
        log.error("webhook %s: their batch is made a dead letter: %s", name, reason)
        self._tally.dead += 1
        self._tally.last_failure = Failure(at_ms=self._clock.now_ms(), reason=reason)
        notes = [(WEBHOOK + b"name", name.encode()), (WEBHOOK + b"reason", reason.encode())]
        self._source.bury(delivery, notes)

    def _done(self, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        self._ended.set()
        if not request.cancelled() and (error := request.exception()) is not None:
            log.error("webhook %s: a request failed in the broker", self._webhook.name, exc_info=error)
