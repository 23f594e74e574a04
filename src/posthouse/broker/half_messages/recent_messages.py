"""Half messages that were just prepared, in memory: most are decided within milliseconds."""

from collections import OrderedDict
from typing import Final

from posthouse.broker.half_messages.half_message import HalfMessage

CACHED_BYTES: Final = 32 * 1024 * 1024


class RecentMessages:
    def __init__(self) -> None:
        self._messages: OrderedDict[int, HalfMessage] = OrderedDict()
        self._bytes = 0

    def get(self, id: int) -> HalfMessage | None:
        return self._messages.get(id)

    def add(self, id: int, message: HalfMessage) -> None:
        self._messages[id] = message
        self._bytes += message.size
        while self._bytes > CACHED_BYTES:
            _, oldest = self._messages.popitem(last=False)
            self._bytes -= oldest.size

    def forget(self, id: int) -> None:
        known = self._messages.pop(id, None)
        if known is not None:
            self._bytes -= known.size
