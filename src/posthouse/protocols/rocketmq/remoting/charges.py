"""Which requests are charged for their bytes."""

from typing import Final

from posthouse.protocols.rocketmq.charges import Charges
from posthouse.protocols.rocketmq.codec.codes import RequestCode

_WRITING: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
_READING: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)


class RequestCharges(Charges):
    def received(self, code: int, size: int) -> None:
        """A request of `size` bytes."""
        if code in _WRITING:
            self.written(size)

    def answered(self, code: int, size: int) -> None:
        """A request, with a body of `size` bytes."""
        if code in _READING:
            self.read(size)
