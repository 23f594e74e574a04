"""One request, until it is answered."""

from typing import Final, Protocol

from posthouse.broker.access.guard import Guard
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.protocols.request_metrics import ApiMetrics
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.remoting.errors import Refused, code_of, remark_of
from posthouse.protocols.rocketmq.remoting.server import RemotingServer
from posthouse.settings import Address

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_LONGEST_NUMBER: Final = 20


class Caller(Protocol):
    """The connection of a client, as far as requests need it."""

    server: RemotingServer
    guard: Guard
    host: bytes
    """The client's address, as it is in messages."""
    own_host: bytes
    address: Address
    """Where clients reach the broker."""
    is_finishing: bool
    """Whether the broker stops: nobody is to wait for anything any more."""

    def answer(self, call: "Call", command: Command) -> None: ...

    def members_changed(self, group: str) -> None:
        """Tell the client that clients have joined or left the group."""

    def check_transaction(self, group: str, id: int, message: HalfMessage) -> None:
        """Ask the client what was decided of a half message."""


class Call:
    """Owned by the event loop. It is answered once, at any time; a oneway request in no frame."""

    __slots__ = ("_is_answered", "begun", "connection", "metrics", "request", "size")

    def __init__(
        self, connection: Caller, request: Command, size: int, metrics: ApiMetrics, begun: float
    ) -> None:
        self.connection = connection
        self.request = request
        self.size = size
        self.metrics = metrics
        self.begun = begun
        self._is_answered = False

    def text(self, name: str) -> str:
        value = self.request.fields.get(name)
        if value is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the field {name} is missing")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self.request.fields.get(name)
        if value is None and default is not None:
            return default
        text = self.text(name)
        if len(text) <= _LONGEST_NUMBER and text.removeprefix("-").isdecimal():
            found = int(text)
            if _LEAST <= found <= _MOST:
                return found
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the field {name} is {text[:50]!r}, and not a number")

    def truth(self, name: str) -> bool:
        return self.request.fields.get(name, "").lower() == "true"

    def answer(
        self,
        code: int = ResponseCode.SUCCESS,
        *,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        assert not self._is_answered, "a request has one answer"
        self._is_answered = True
        self.connection.answer(self, self.request.answer(code, remark=remark, fields=fields, body=body))

    def fail(self, error: BaseException) -> None:
        self.metrics.errors += 1
        self.answer(code_of(error), remark=remark_of(error))
