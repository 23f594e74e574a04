"""Methods that clients may call: paths and their handlers."""

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from posthouse.protocols.grpc.call import Call
from posthouse.protocols.grpc.calls import BidiCall, StreamingCall, UnaryCall

UnaryHandler = Callable[[UnaryCall, bytes], Coroutine[Any, Any, bytes | None] | None]
"""A plain function answers by `answer` or `fail`, now or later. A coroutine may return the answer."""
StreamingHandler = Callable[[StreamingCall, bytes], Coroutine[Any, Any, None]]
BidiHandler = Callable[[BidiCall], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    path: str
    kind: type[Call]
    handler: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Methods:
    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}

    def unary(self, path: str, handler: UnaryHandler) -> None:
        self._add(Method(path=path, kind=UnaryCall, handler=handler))

    def streaming(self, path: str, handler: StreamingHandler) -> None:
        """One request, many answers."""
        self._add(Method(path=path, kind=StreamingCall, handler=handler))

    def bidi(self, path: str, handler: BidiHandler) -> None:
        self._add(Method(path=path, kind=BidiCall, handler=handler))

    def _add(self, method: Method) -> None:
        if method.path in self._methods:
            raise ValueError(f"the method {method.path} has a handler already")
        self._methods[method.path] = method

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())
