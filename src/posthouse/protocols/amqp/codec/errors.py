"""Protocol violations of a peer, and their reply codes."""

from collections.abc import Sequence

from posthouse.protocols.amqp.codec.events import Event

FRAME_ERROR = 501
COMMAND_INVALID = 503
CHANNEL_ERROR = 504
UNEXPECTED_FRAME = 505
NOT_IMPLEMENTED = 540

_SHOWN = 128


class FrameError(Exception):
    """The peer is at fault, and the connection ends with `code`.

    `index` is the method's, class in the upper half, or 0 where no method can be blamed. `events` are those
    that were complete in the same chunk before the fault: they count.
    """

    def __init__(self, code: int, text: str, index: int = 0, *, is_lost: bool | None = None) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.class_id = index >> 16
        self.method_id = index & 0xFFFF
        self.events: Sequence[Event] = ()
        self.is_lost = code == FRAME_ERROR if is_lost is None else is_lost
        """Whether the start of the next frame is unknown."""


def undecodable(arguments: bytes, index: int) -> FrameError:
    """A whole frame with a method that is known and arguments that are not its own. In RabbitMQ's words."""
    return FrameError(FRAME_ERROR, f"cannot decode {octets(arguments)}", index, is_lost=False)


def octets(data: bytes) -> str:
    """As Erlang shows them. A reply text has room for 255 characters at most."""
    data = data[:_SHOWN]
    if data and all(32 <= each < 127 and each not in b'"\\' for each in data):
        return f'<<"{data.decode()}">>'
    return f"<<{','.join(map(str, data))}>>"
