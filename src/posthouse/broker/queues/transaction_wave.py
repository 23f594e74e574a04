"""A wave of its own: messages, settlements and state that become durable in one commit.

For transactions of clients, dead letters, messages that are moved, and delayed messages that are due.
"""

import asyncio
from collections.abc import Sequence

from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.publishing import Publishing, Wave
from posthouse.model.errors import PosthouseError
from posthouse.storage.operations import Operation, Put


class TransactionWave(Wave):
    """Written when `commit` is called; the caller ends one that it does not commit with `abandon`."""

    def __init__(self, publishing: Publishing) -> None:
        super().__init__(publishing)
        self._settling: list[Message] = []
        self._settled: list[Message] = []
        """In memory. They are unsettled if the wave fails."""
        self._puts: list[Put] = []

    def put(self, put: Put) -> None:
        self._puts.append(put)

    def settle(self, messages: Sequence[Message]) -> None:
        """Settle messages with the commit. They stay leased until the wave is written."""
        self._settling += messages

    def commit(self) -> asyncio.Future[None]:
        """Write the wave. The future is done when it is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: PosthouseError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.on_end(ended)
        self._publishing.submit(self)
        return done

    def abandon(self) -> None:
        """Roll back."""
        self._expect_no_more()

    def _operations(self) -> Sequence[Operation]:
        lanes: dict[MessageLane, None] = {}
        for message in self._settling:
            if message.lane.leases.settle(message.position, message):
                self._settled.append(message)
                lanes[message.lane] = None
        return [*(put for lane in lanes for put in lane.progress.puts()), *self._puts]

    def end(self, error: PosthouseError | None) -> None:
        if error is None:
            self._tell_queues()
        else:
            for message in self._settled:
                message.lane.unsettle(message)
        super().end(error)

    def _tell_queues(self) -> None:
        settled: dict[MessageSource, list[Message]] = {}
        for message in self._settled:
            settled.setdefault(message.queue, []).append(message)
        for queue, messages in settled.items():
            queue.settled(messages)
