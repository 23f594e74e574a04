"""One request to one response: login, rules for browsers, route, handler. Errors become problems here."""

import asyncio
import logging
from time import perf_counter
from typing import Final

from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.model.errors import PosthouseError
from posthouse.protocols.admin.browsers import READING, check
from posthouse.protocols.admin.context import CallContext, Kept
from posthouse.protocols.admin.events import EventHub
from posthouse.protocols.admin.login import PROTOCOL, HttpLogin
from posthouse.protocols.admin.management.errors import rabbitmq_error
from posthouse.protocols.admin.other_brokers import check_part
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import RABBITMQ, HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.admin.router import PathRouter, Route
from posthouse.protocols.front_end import Backend

log = logging.getLogger(__name__)

_NO_ROUTE: Final = "unknown"
"""In metrics: all paths and methods that are not served."""
_NO_LEASE: Final = "the database cannot be reached"


class RequestDispatcher:
    """One for all connections."""

    def __init__(self, backend: Backend, router: PathRouter, kept: Kept, events: EventHub) -> None:
        self._backend = backend
        self._router = router
        self._kept = kept
        self._events = events
        self._changes: set[asyncio.Task[Response]] = set()

    async def dispatch(self, request: HttpRequest, login: HttpLogin, peer: str, host: str) -> Response:
        if request.method in READING:
            return await self._dispatch(request, login, peer, host)
        # A change that has begun is finished, and is in the audit log, also when the client is gone.
        if not self._may_change():
            return _shown(request, Problem(503, f"{_NO_LEASE}: nothing can be changed until it is back"))
        change = asyncio.create_task(self._dispatch(request, login, peer, host))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        response = await asyncio.shield(change)
        if not self._may_change():
            return _shown(request, Problem(503, f"{_NO_LEASE}: whether this was changed is not known"))
        return response

    def _may_change(self) -> bool:
        membership = self._backend.membership
        return membership is None or membership.may_serve()

    async def _dispatch(self, request: HttpRequest, login: HttpLogin, peer: str, host: str) -> Response:
        begun = perf_counter()
        response = await self._answered(request, login, peer, host)
        metrics = self._backend.requests.of(PROTOCOL, self._api_of(request))
        metrics.seconds.observe(perf_counter() - begun)
        if response.status >= 400:
            metrics.errors += 1
        return response

    def _api_of(self, request: HttpRequest) -> str:
        """Its route, with the names of parameters in place of values."""
        route = self._route_of(request)
        return _NO_ROUTE if route is None else f"{route.method} {route.path}"

    async def _answered(self, request: HttpRequest, login: HttpLogin, peer: str, host: str) -> Response:
        try:
            if not login.is_relayed:  # else the broker that relays has checked it
                known = self._route_of(request)
                check(
                    request,
                    must_log_in=self._backend.settings.must_log_in,
                    host=host,
                    takes_any_type=known is not None and known.takes_any_type,
                )
            # An unknown path is not told apart from a known one before the login.
            guard = await self._guard_unless_public(request, login)
            route, parameters = self._router.find(request.method, request.segments)
            if len(request.body) > route.most_body:
                raise Problem(413, f"the body of this call may have at most {route.most_body} bytes")
            context = CallContext(
                backend=self._backend,
                guard=guard,
                peer=peer,
                caller=login.caller,
                kept=self._kept,
                events=self._events,
            )
            if login.is_relayed:
                check_part(request, self._backend.broker.holds)
            try:
                response = await route.handler(context, request, parameters)
            finally:  # a call that fails may have changed something before
                await self._backend.broker.access.audit.written(guard.last_change)
            if login.is_relayed:
                check_part(request, self._backend.broker.holds)
            return response
        except Problem as problem:
            return _shown(request, problem)
        except PosthouseError as error:
            return _shown(request, Problem.of(error))
        except Exception:
            log.exception("admin: %s %s from %s failed", request.method, request.path[:200], peer)
            return _shown(request, Problem(500, "the broker failed to answer; its log has the reason"))

    async def _guard_unless_public(self, request: HttpRequest, login: HttpLogin) -> Guard:
        credentials = request.headers.get("authorization")
        if credentials is None and self._is_public(request) and self._backend.settings.must_log_in:
            return CLOSED
        return await login.guard(credentials)

    def _is_public(self, request: HttpRequest) -> bool:
        route = self._route_of(request)
        return route is not None and route.is_public

    def _route_of(self, request: HttpRequest) -> Route | None:
        try:
            return self._router.find(request.method, request.segments)[0]
        except Problem:
            return None


def _shown(request: HttpRequest, problem: Problem) -> Response:
    """Tools of RabbitMQ expect its own kind of errors."""
    return rabbitmq_error(problem) if request.segments[0] == RABBITMQ else problem.response()
