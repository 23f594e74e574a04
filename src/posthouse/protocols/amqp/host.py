"""The connection, as its conversation knows it."""

from collections.abc import Callable
from typing import Final, Protocol, cast

from posthouse.protocols.amqp.errors import Refused
from posthouse.protocols.noop import noop


class ConversationHost(Protocol):
    def greeted(self, header: bytes) -> None: ...

    def logged_in(self) -> None: ...

    def tuned(self) -> None:
        """The client has sent tune-ok: see `Conversation.negotiation`."""

    def is_transferred(self) -> bool:
        """Asked when the client has sent connection.open. Whether another broker serves its virtual host, and
        answers. Raises Refused if no broker is to be asked."""

    def opened(self) -> None: ...

    def close_asked_for(self) -> None: ...

    def close_agreed(self) -> None: ...

    def close_because(self, refusal: Refused, index: int) -> None:
        """`index` is that of the refused method."""

    def regulate(self) -> None:
        """Decide again whether to read on."""


class _LostHost:
    """Takes the calls of a conversation whose connection is lost."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return noop


LOST_HOST: Final = cast("ConversationHost", _LostHost())
