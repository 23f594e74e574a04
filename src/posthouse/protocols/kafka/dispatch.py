"""Dispatch of a frame to its handler, by the table of `served_apis`."""

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, TypeAlias

from posthouse.broker.access.guard import CLOSED
from posthouse.broker.broker import Broker
from posthouse.protocols.kafka.call import Call
from posthouse.protocols.kafka.codec.headers import (
    API_VERSIONS_KEY,
    RequestHeader,
    decode_request_header,
    response_frame,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import Api
from posthouse.protocols.kafka.errors import ErrorCode, ProtocolViolation
from posthouse.protocols.kafka.handler import Deferred, Handler
from posthouse.protocols.kafka.handlers import api_versions
from posthouse.protocols.kafka.nodes import Node
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.kafka.quirks import SENT_WRONG, repaired
from posthouse.protocols.kafka.served_apis import ADVERTISED, BEFORE_LOGIN, HANDLERS
from posthouse.protocols.kafka.share_groups.share_groups import ShareGroups
from posthouse.protocols.kafka.throttling import Throttling
from posthouse.protocols.request_metrics import ApiMetrics, RequestMetrics
from posthouse.protocols.stopwatch import Stopwatch, Timed

_PROTOCOL = "kafka"

Served: TypeAlias = dict[int, tuple[Api, Handler[Any], ApiMetrics]]
"""By the key of the API."""


class RequestDispatcher:
    def __init__(
        self, broker: Broker, requests: RequestMetrics, new_call: Callable[..., Call] = Call
    ) -> None:
        """`new_call` is called as `Call` is."""
        self._broker = broker
        self._new_call = new_call
        self._served: Served = {
            key: (api, handler, requests.of(_PROTOCOL, api.name)) for key, (api, handler) in HANDLERS.items()
        }
        self._throttling = Throttling(broker.access.quotas)
        self.share_groups = ShareGroups(
            broker.subscriptions,
            broker.group_configs,
            find_topic=broker.topics.find,
            monotonic=broker.monotonic,
            is_other_group=broker.groups.__contains__,
            max_size=broker.settings.group_max_size,
        )
        self.is_behind = broker.is_behind
        self.now_ms = broker.now_ms

    def dispatch(self, frame: memoryview, node: Node, pending: PendingRequest) -> None:
        """Start one request. Raises DecodeError or ProtocolViolation if the connection must close."""
        begun = perf_counter()
        header, pos = decode_request_header(frame)
        served = self._served.get(header.api_key)
        if served is None:
            raise ProtocolViolation(f"a request with the API key {header.api_key}, which is not served")
        api, handler, metrics = served
        guard = pending.guard
        if guard is CLOSED and handler.key not in BEFORE_LOGIN:
            raise ProtocolViolation(f"{api.name} before a login")
        version = header.api_version
        if not api.min_version <= version <= api.max_version:
            _answer_unsupported(api, header, pending)
            return
        if handler.key in SENT_WRONG:
            frame = repaired(header.api_key, version, frame, pos)
        request = api.decode_request(version, frame, pos)
        call = self._new_call(self._broker, self.share_groups, node, version, header.client_id, guard)
        call.throttling = self._throttling
        call.api = api
        call.handler = handler
        call.correlation_id = header.correlation_id
        call.request = request
        call.pending = pending
        call.finish = None
        call.stopwatch = None
        call.begun = begun
        call.metrics = metrics
        try:
            if self._throttling.is_on:
                call.stopwatch = Stopwatch()
                with call.stopwatch:
                    answer = handler.handle(call, request)
            else:
                answer = handler.handle(call, request)
        except Exception as error:  # noqa: BLE001 - mapped in `fail`
            call.fail(error)
            return
        if type(answer) is Deferred:
            call.finish = answer.finish
            call.wait_for(answer.future)
        elif answer is None or isinstance(answer, Message):
            call.respond(answer)
        elif isinstance(answer, Coroutine):
            if call.stopwatch is not None:
                answer = Timed(answer, call.stopwatch)
            call.wait_for(pending.run(answer))


def _answer_unsupported(api: Api, header: RequestHeader, pending: PendingRequest) -> None:
    """Answer an ApiVersions request of a newer client, which then retries. For other APIs the connection is
    closed."""
    if api.key != API_VERSIONS_KEY:
        raise ProtocolViolation(
            f"{api.name} version {header.api_version}; {api.min_version} to {api.max_version} are served"
        )
    body = api.encode_response(0, api_versions.response(ADVERTISED, ErrorCode.UNSUPPORTED_VERSION))
    pending.answer(response_frame(api.key, 0, header.correlation_id, body))
