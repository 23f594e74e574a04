"""One request, from its handler's result to its encoded response."""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

from posthouse.model.errors import PosthouseError
from posthouse.model.histogram import SECONDS
from posthouse.protocols.kafka.codec.headers import response_frame
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import Api
from posthouse.protocols.kafka.errors import (
    CloseWithoutResponse,
    ErrorCode,
    ProtocolViolation,
    Refused,
    code_of,
)
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.kafka.request_origins import CorrelatedOrigin
from posthouse.protocols.kafka.response_errors import has_error
from posthouse.protocols.kafka.throttling import Throttling
from posthouse.protocols.request_metrics import ApiMetrics
from posthouse.protocols.stopwatch import Stopwatch

log = logging.getLogger(__name__)


class Call(Context):
    """One request until its response is encoded. Also its context: the produce path creates few objects."""

    __slots__ = (
        "api",
        "begun",
        "correlation_id",
        "finish",
        "handler",
        "metrics",
        "pending",
        "request",
        "stopwatch",
        "throttling",
    )

    api: Api
    handler: Handler[Any]
    correlation_id: int
    request: Message
    pending: PendingRequest
    throttling: Throttling
    stopwatch: Stopwatch | None
    begun: float
    metrics: ApiMetrics
    finish: Callable[[Any], Message | None] | None

    @property
    def client_host(self) -> str:
        return "/" + self.pending.peer.rpartition(":")[0]

    @property
    def client_peer(self) -> str:
        return self.pending.peer

    @property
    def software(self) -> tuple[str, str]:
        return self.pending.software

    def introduce(self, name: str, version: str) -> None:
        self.pending.introduce(name, version)

    @property
    def origin(self) -> CorrelatedOrigin:
        return CorrelatedOrigin(self.pending.session, self.correlation_id)

    @property
    def login(self) -> Login | None:
        return self.pending.login

    @property
    def room(self) -> int:
        return self.pending.room

    def hold(self, size: int) -> None:
        self.pending.hold(size)

    def close_after_answer(self) -> None:
        self.pending.close_after_answer()

    def offended(self) -> None:
        self.pending.offended()

    def count_error(self) -> None:
        self.metrics.errors += 1

    def wait_for(self, future: "asyncio.Future[Any]") -> None:
        future.add_done_callback(self.done)

    def done(self, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            return
        failure = future.exception()
        if failure is not None:
            self.fail(failure)
            return
        # `finish` may refer to the call: clearing it avoids a reference cycle, which would need the garbage
        # collector.
        finish, self.finish = self.finish, None
        try:
            response = finish(future.result()) if finish else future.result()
        except Exception as error:  # noqa: BLE001 - mapped in `fail`
            self.fail(error)
            return
        self.respond(response)

    def respond(self, response: Message | None, *, has_failed: bool = False) -> None:
        metrics = self.metrics
        # As `Histogram.observe` does it, without the call: this is a part of every request.
        seconds, taken = metrics.seconds, perf_counter() - self.begun
        seconds.buckets[bisect_left(SECONDS, taken)] += 1
        seconds.sum += taken
        if has_failed or (not self.handler.counts_errors and response is not None and has_error(response)):
            metrics.errors += 1
        if self.stopwatch is not None:
            self._throttle(response, self.stopwatch.seconds)
        if response is None:
            self.pending.answer(None)
            return
        version = self.version
        try:
            body = (self.handler.encode or self.api.encode_response)(version, response)
        except Exception:
            log.exception(
                "client %s: cannot encode the response to %s version %d",
                self.pending.peer,
                self.api.name,
                version,
            )
            self.pending.give_up("its response cannot be encoded")
            return
        frame = response_frame(self.api.key, version, self.correlation_id, body)
        change = self.guard.last_change
        if change:
            self.broker.access.audit.when_written(change, partial(self.pending.answer, frame))
        else:
            self.pending.answer(frame)

    def _throttle(self, response: Message | None, seconds: float) -> None:
        delay = self.throttling.delay(
            self.api.key, self.guard.principal, self.client_id, self.pending.size, response, seconds
        )
        if delay > 0:
            self.pending.throttle(delay, self.throttling.waits)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, CloseWithoutResponse):
            self._close_without_response()
            self.pending.give_up(str(error))
            return
        if isinstance(error, ProtocolViolation):
            self._close_without_response()
            self.pending.violated(str(error))
            return
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why"
        if isinstance(error, Refused):
            code, message = error.code, str(error)
        elif isinstance(error, PosthouseError):
            code, message = code_of(error), str(error)
        else:
            log.error(
                "client %s: %s version %d failed",
                self.pending.peer,
                self.api.name,
                self.version,
                exc_info=error,
            )
        try:
            response = self.handler.refuse(self, self.request, code, message)
        except CloseWithoutResponse as close:
            self._close_without_response()
            self.pending.give_up(str(close))
            return
        self.respond(response, has_failed=True)

    def _close_without_response(self) -> None:
        self.metrics.untimed += 1
        self.metrics.errors += 1
