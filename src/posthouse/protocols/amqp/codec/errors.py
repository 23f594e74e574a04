"""What a peer can do wrong on the wire, and the reply codes for it."""

from collections.abc import Sequence

from posthouse.protocols.amqp.codec.events import Event

FRAME_ERROR = 501
SYNTAX_ERROR = 502
COMMAND_INVALID = 503
CHANNEL_ERROR = 504
UNEXPECTED_FRAME = 505
NOT_IMPLEMENTED = 540


class FrameError(Exception):
    """The peer is at fault, and the connection ends with `code`.

    `index` is the method's, class in the upper half, or 0 where no method can be blamed. `events` are those
    that were complete in the same chunk before the fault: they count.
    """

    def __init__(self, code: int, text: str, index: int = 0) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.class_id = index >> 16
        self.method_id = index & 0xFFFF
        self.events: Sequence[Event] = ()

    @property
    def is_lost(self) -> bool:
        """Whether nobody can say where the next frame begins."""
        return self.code == FRAME_ERROR
