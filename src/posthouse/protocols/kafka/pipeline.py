"""Requests of one connection that were started: their responses are sent in the order of the requests."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.pending_request import PendingRequest


class Pipeline:
    __slots__ = ("_blocked_by", "_flow", "_loop", "_pending", "held", "task", "unfinished")

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: FlowControl) -> None:
        """Keeps the bytes in flight of `flow` up to date."""
        self._loop = loop
        self._flow = flow
        self._pending: deque[PendingRequest] = deque()
        self._blocked_by: PendingRequest | None = None
        self.task: asyncio.Task[Message | None] | None = None
        """While it runs, no later request is started."""
        self.held = 0
        """Bytes of responses that wait for earlier ones."""
        self.unfinished = 0
        """Bytes of the response that `task` builds."""

    def __bool__(self) -> bool:
        """Whether a request is not answered."""
        return bool(self._pending)

    def add(self, request: PendingRequest) -> None:
        self._pending.append(request)

    def run(
        self, request: PendingRequest, coroutine: Coroutine[Any, Any, Message | None]
    ) -> asyncio.Task[Message | None]:
        """Hold back later requests until `coroutine` is done; it is cancelled with the connection."""
        self._blocked_by = request
        self.task = self._loop.create_task(coroutine)
        return self.task

    def answered(self, request: PendingRequest) -> None:
        """Send finished responses, up to the first unfinished request."""
        if self._blocked_by is request:
            self._blocked_by = self.task = None
            self.unfinished = 0
        pending, flow = self._pending, self._flow
        if pending[0] is not request:
            request.held = sum(map(len, request.chunks or ()))
            self.held += request.held
            flow.in_flight += request.held
            return
        while pending and pending[0].ready:
            first = pending.popleft()
            flow.in_flight -= first.size + first.held
            self.held -= first.held
            if first.chunks:
                flow.outbox.send_all(first.chunks)
        if not pending:
            flow.outbox.flush()

    def close(self) -> None:
        """The connection is lost: responses are sent no more."""
        self._pending.clear()
        self._blocked_by = None
        if self.task is not None:
            self.task.cancel()
            self.task = None
