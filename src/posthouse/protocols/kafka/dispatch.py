"""Dispatch of a frame to its handler, and encoding of the response.

The table is the list of served APIs, and exactly what ApiVersions advertises.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import Any

from posthouse.broker.access.guard import CLOSED
from posthouse.broker.broker import Broker
from posthouse.model.errors import PosthouseError
from posthouse.model.histogram import SECONDS
from posthouse.protocols.kafka.codec.headers import (
    API_VERSIONS_KEY,
    RequestHeader,
    decode_request_header,
    response_frame,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import APIS, Api
from posthouse.protocols.kafka.errors import (
    CloseWithoutResponse,
    ErrorCode,
    ProtocolViolation,
    Refused,
    code_of,
)
from posthouse.protocols.kafka.handler import Context, Deferred, Handler
from posthouse.protocols.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_together,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.nodes import Node
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.kafka.quirks import SENT_WRONG, repaired
from posthouse.protocols.kafka.request_origins import CorrelatedOrigin
from posthouse.protocols.kafka.response_errors import has_error
from posthouse.protocols.kafka.share_groups.share_groups import ShareGroups
from posthouse.protocols.kafka.throttling import Throttling
from posthouse.protocols.request_metrics import ApiMetrics, RequestMetrics
from posthouse.protocols.stopwatch import Stopwatch, Timed

log = logging.getLogger(__name__)

_SERVED: tuple[Handler[Any], ...] = (
    produce.HANDLER,
    fetch.HANDLER,
    list_offsets.HANDLER,
    metadata.HANDLER,
    offset_commit.HANDLER,
    offset_fetch.HANDLER,
    find_coordinator.HANDLER,
    join_group.HANDLER,
    heartbeat.HANDLER,
    leave_group.HANDLER,
    sync_group.HANDLER,
    describe_groups.HANDLER,
    list_groups.HANDLER,
    sasl_handshake.HANDLER,
    create_topics.HANDLER,
    delete_topics.HANDLER,
    delete_records.HANDLER,
    init_producer_id.HANDLER,
    offset_for_leader_epoch.HANDLER,
    add_partitions_to_txn.HANDLER,
    add_offsets_to_txn.HANDLER,
    end_txn.HANDLER,
    write_txn_markers.HANDLER,
    txn_offset_commit.HANDLER,
    describe_acls.HANDLER,
    create_acls.HANDLER,
    delete_acls.HANDLER,
    describe_configs.HANDLER,
    alter_configs.HANDLER,
    alter_replica_log_dirs.HANDLER,
    describe_log_dirs.HANDLER,
    sasl_authenticate.HANDLER,
    create_partitions.HANDLER,
    delegation_tokens.CREATE,
    delegation_tokens.RENEW,
    delegation_tokens.EXPIRE,
    delegation_tokens.DESCRIBE,
    delete_groups.HANDLER,
    elect_leaders.HANDLER,
    incremental_alter_configs.HANDLER,
    alter_partition_reassignments.HANDLER,
    list_partition_reassignments.HANDLER,
    offset_delete.HANDLER,
    describe_client_quotas.HANDLER,
    alter_client_quotas.HANDLER,
    describe_user_scram_credentials.HANDLER,
    alter_user_scram_credentials.HANDLER,
    describe_quorum.HANDLER,
    update_features.HANDLER,
    describe_cluster.HANDLER,
    describe_producers.HANDLER,
    describe_transactions.HANDLER,
    list_transactions.HANDLER,
    consumer_group_heartbeat.HANDLER,
    consumer_group_describe.HANDLER,
    get_telemetry_subscriptions.HANDLER,
    push_telemetry.HANDLER,
    list_config_resources.HANDLER,
    describe_topic_partitions.HANDLER,
    share_group_heartbeat.HANDLER,
    share_group_describe.HANDLER,
    share_fetch.HANDLER,
    share_acknowledge.HANDLER,
    streams_group_heartbeat.HANDLER,
    streams_group_describe.HANDLER,
    describe_share_group_offsets.HANDLER,
    alter_share_group_offsets.HANDLER,
    delete_share_group_offsets.HANDLER,
    end_together.HANDLER,
)
_ADVERTISED = [APIS[key] for key in sorted({API_VERSIONS_KEY, *(handler.key for handler in _SERVED)})]
_API_VERSIONS = api_versions.handler(_ADVERTISED)

_PROTOCOL = "kafka"

_BEFORE_LOGIN = frozenset({API_VERSIONS_KEY, sasl_handshake.HANDLER.key, sasl_authenticate.HANDLER.key})

HANDLERS: dict[int, tuple[Api, Handler[Any]]] = {
    handler.key: (APIS[handler.key], handler) for handler in (_API_VERSIONS, *_SERVED)
}


class Dispatcher:
    def __init__(self, broker: Broker, requests: RequestMetrics) -> None:
        self._broker = broker
        self._served = {
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
        if guard is CLOSED and handler.key not in _BEFORE_LOGIN:
            raise ProtocolViolation(f"{api.name} before a login")
        version = header.api_version
        if not api.min_version <= version <= api.max_version:
            _answer_unsupported(api, header, pending)
            return
        if handler.key in SENT_WRONG:
            frame = repaired(header.api_key, version, frame, pos)
        request = api.decode_request(version, frame, pos)
        call = _Call(self._broker, self.share_groups, node, version, header.client_id, guard)
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
            answer.future.add_done_callback(call.done)
        elif answer is None or isinstance(answer, Message):
            call.respond(answer)
        elif isinstance(answer, Coroutine):
            if call.stopwatch is not None:
                answer = Timed(answer, call.stopwatch)
            pending.run(answer).add_done_callback(call.done)


def _answer_unsupported(api: Api, header: RequestHeader, pending: PendingRequest) -> None:
    """Answer an ApiVersions request of a newer client, which then retries. For other APIs the connection is
    closed."""
    if api.key != API_VERSIONS_KEY:
        raise ProtocolViolation(
            f"{api.name} version {header.api_version}; {api.min_version} to {api.max_version} are served"
        )
    body = api.encode_response(0, api_versions.response(_ADVERTISED, ErrorCode.UNSUPPORTED_VERSION))
    pending.answer(response_frame(api.key, 0, header.correlation_id, body))


class _Call(Context):
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
            self.pending.throttle(delay)

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
