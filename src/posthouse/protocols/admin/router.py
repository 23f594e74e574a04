"""Which handler answers a request: a tree of path segments, with the methods at its leaves."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import RABBITMQ, HttpRequest
from posthouse.protocols.admin.response import Response

Parameters: TypeAlias = Mapping[str, str]
_Found: TypeAlias = "tuple[_Node, tuple[str, ...]] | None"
Handler: TypeAlias = Callable[[CallContext, HttpRequest, Parameters], Awaitable[Response]]

MOST_BODY: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    """Segments in braces are parameters: /v1/topics/{topic}."""
    handler: Handler
    is_public: bool = False
    """Answered without a login. The handler's guard may then allow nothing."""
    most_body: int = MOST_BODY
    """Bytes. JSON is decoded on the event loop: a megabyte of brackets takes it a tenth of a second."""
    takes_any_type: bool = False
    """A body need not be JSON."""


@dataclass(slots=True)
class _Node:
    children: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)
    """By method, with the names of the parameters on the way here."""


class PathRouter:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in route.path.split("/")[1:]:
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        if route.method in node.routes:
            raise ValueError(f"two routes for {route.method} {route.path}")
        node.routes[route.method] = (route, tuple(names))

    def find(self, method: str, segments: Sequence[str]) -> tuple[Route, Parameters]:
        """Raises Problem: 404 for an unknown path, 405 for a method that it does not have."""
        if len(segments) > 1 and segments[0] == RABBITMQ and not segments[-1]:
            segments = segments[:-1]  # as with RabbitMQ; Flower writes a slash at the end
        found = _find(self._root, segments, ())
        if found is None:
            raise Problem(404, f"there is nothing at /{'/'.join(segments)[:200]}; see /v1/openapi.json")
        node, values = found
        wanted = "GET" if method == "HEAD" else method
        if wanted not in node.routes:
            allowed = ", ".join(sorted({*node.routes, *(["HEAD"] if "GET" in node.routes else [])}))
            raise Problem(405, f"{method} is not possible here; use {allowed}", headers=(("allow", allowed),))
        route, names = node.routes[wanted]
        return route, dict(zip(names, values, strict=True))


def _find(node: _Node, segments: Sequence[str], values: tuple[str, ...]) -> _Found:
    if not segments:
        return (node, values) if node.routes else None
    first, rest = segments[0], segments[1:]
    child = node.children.get(first)
    if child is not None and (found := _find(child, rest, values)) is not None:
        return found
    if node.parameter is not None and first:
        return _find(node.parameter, rest, (*values, first))
    return None
