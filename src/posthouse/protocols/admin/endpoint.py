"""One call of the JSON API, declared by types. They check what is sent, and describe it (see `openapi`).

Parameters (of the path and the query), body and result are `msgspec.Struct`s. A value that does not fit is
answered with a problem that names it. Fields carry their meaning:
`Annotated[int, Meta(ge=1, description="...")]`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import msgspec

from posthouse.model.errors import UnknownTopic
from posthouse.model.scopes import Scope
from posthouse.protocols.admin.body_reader import BodyReader
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import JSON, NO_CONTENT, Response, json_response
from posthouse.protocols.admin.router import MOST_BODY, Parameters, Route
from posthouse.protocols.admin.wrong_values import in_words

P = TypeVar("P", bound=msgspec.Struct)
B = TypeVar("B")


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The call takes no body; an empty object is accepted, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[P, B]):
    method: str
    path: str
    summary: str
    tag: str
    description: str = ""
    """What the summary has no room for, in Markdown."""
    handler: Callable[[CallContext, P, B], Awaitable[Any]]
    """What it returns is the result, or a Response."""
    parameters: type[P] = field(default=NoParameters)  # type: ignore[assignment]
    body: Any = NoBody
    """The type of the body; B."""
    reader: BodyReader[P, B] | None = None
    """Reads bodies that are not just JSON of that type."""
    result: Any = None
    """The type of the result. None is answered with 204."""
    status: int = 200
    content_type: str = JSON
    most_body: int = MOST_BODY
    before: Callable[[CallContext, P], Awaitable[None]] | None = None
    """What the broker does first that the client has asked, also if another one answers."""
    scope: Callable[[P], Scope] | None = None
    """The scope that the call is about: the broker that holds it answers. Calls with a parameter `namespace`
    need none: the broker answers that serves the namespace."""
    writes_to_topic: bool = False
    """It writes to the log of the parameter `topic`: if that feeds queues, the broker answers that serves
    them."""
    problems: tuple[int, ...] = ()
    """Status codes besides 400, 401, 403 and 503, which every call may have."""

    @property
    def operation_id(self) -> str:
        """Unique, and readable in generated clients: get_topics_topic."""
        words = [each.strip("{}").replace("-", "_") for each in self.path.split("/")[2:]]
        return "_".join([self.method.lower(), *words])

    def route(self) -> Route:
        return Route(
            method=self.method,
            path=self.path,
            handler=self._answer,
            most_body=self.most_body,
            takes_any_type=self.reader is not None and bool(self.reader.types),
        )

    async def _answer(self, context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
        checked = self._parameters(request, parameters)
        body = self._body(request) if self.reader is None else self.reader.read(request, checked)
        scope = await self._scope_of_topic(context, checked) if self.writes_to_topic else None
        if self.scope is not None:
            scope = self.scope(checked)
        if self.before is not None and not context.caller.is_relayed:
            await self.before(context, checked)
        if scope is not None and context.is_elsewhere(scope):
            return await context.ask(scope, request)
        namespace: str | None = getattr(checked, "namespace", None)
        if namespace is None:  # or the call is about all of them
            return await self._handled(context, checked, body)
        return await context.in_namespace(namespace, request, lambda: self._handled(context, checked, body))

    async def _scope_of_topic(self, context: CallContext, parameters: P) -> Scope | None:
        name: str = getattr(parameters, "topic", "")
        try:
            return (await context.broker.find_topic(name)).scope
        except UnknownTopic:
            return None  # the handler says so, to those who may know

    async def _handled(self, context: CallContext, parameters: P, body: B) -> Response:
        result = await self.handler(context, parameters, body)
        if isinstance(result, Response):
            return result
        if self.result is None:
            return NO_CONTENT
        return json_response(result, status=self.status)

    def _parameters(self, request: HttpRequest, parameters: Parameters) -> P:
        clash = parameters.keys() & request.query.keys()
        if clash:
            raise Problem(400, f"{min(clash)!r} belongs to the path, not to the query")
        try:
            checked = msgspec.convert({**request.query, **parameters}, self.parameters, strict=False)
        except msgspec.ValidationError as error:
            raise Problem(400, in_words(error, self.parameters, "parameter")) from None
        for name, text in request.query.items():
            if getattr(checked, name) is None:
                raise Problem(400, f"{name!r} cannot be {text!r}; leave the parameter out")
        return checked

    def _body(self, request: HttpRequest) -> B:
        if self.body is NoBody and not request.body:
            return NoBody()  # type: ignore[return-value]
        if not request.body:
            raise Problem(400, "the request has no body; send {} to take all defaults")
        try:
            return cast("B", msgspec.json.decode(request.body, type=self.body))
        except msgspec.ValidationError as error:
            raise Problem(400, f"the body is wrong: {in_words(error, self.body, 'field')}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, f"the body is not valid JSON: {error}") from None
