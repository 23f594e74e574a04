"""What all connections share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from posthouse.protocols.budget import Budget
from posthouse.protocols.grpc.call import Call, Caller, Session
from posthouse.protocols.grpc.http2.limits import Http2Limits
from posthouse.protocols.grpc.methods import Methods
from posthouse.protocols.request_metrics import ApiMetrics, RequestMetrics

UNKNOWN: Final = "unknown"
"""In metrics: methods that do not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    max_message_bytes: int = 16 * 1024 * 1024
    max_streams: int = 512
    """Concurrent calls of one connection, long polls among them."""
    max_header_bytes: int = 16 * 1024
    http2: Http2Limits | None = None
    """For tests; else made of the others."""

    def of_http2(self) -> Http2Limits:
        return self.http2 or Http2Limits(max_streams=self.max_streams, max_header_list=self.max_header_bytes)


class BoundMethod:
    """A method with its numbers."""

    __slots__ = ("handler", "kind", "metrics", "name")

    def __init__(self, name: str, kind: type[Call], handler: Callable[..., Any], metrics: ApiMetrics) -> None:
        self.name = name
        self.kind = kind
        self.handler = handler
        self.metrics = metrics


class NoSession:
    def close(self) -> None:
        """There is nothing to close."""

    def tick(self) -> None:
        """There is nothing to do."""


class GrpcServer:
    """Owned by the event loop."""

    def __init__(
        self,
        methods: Methods,
        *,
        protocol: str,
        budget: Budget,
        requests: RequestMetrics,
        is_behind: Callable[[], bool],
        now_ms: Callable[[], int],
        buffer_bytes: int,
        allow_cleartext: bool = False,
        limits: GrpcLimits | None = None,
        open_session: Callable[[Caller], Session] | None = None,
    ) -> None:
        """`protocol` is the name in metrics, and for people. `buffer_bytes` is the most that a connection
        may hold of unanswered requests and of unsent answers before it is slowed down. `open_session` makes
        what the application keeps for each connection."""
        self.protocol = protocol
        self.budget = budget
        self.is_behind = is_behind
        self.now_ms = now_ms
        self.buffer_bytes = buffer_bytes
        self.allow_cleartext = allow_cleartext
        self.limits = limits or GrpcLimits()
        self.http2_limits = self.limits.of_http2()
        self.open_session = open_session or (lambda _: NoSession())
        self.methods = {
            each.path.encode(): BoundMethod(
                each.name, each.kind, each.handler, requests.of(protocol, each.name)
            )
            for each in methods
        }
        self.unknown = requests.of(protocol, UNKNOWN)
