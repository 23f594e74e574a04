"""SASL tokens as raw frames, without a request header: the protocol before SaslAuthenticate."""

import asyncio
import logging
from struct import Struct
from typing import Any

from posthouse.model.errors import LoginFailed
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.pending_request import PendingRequest

log = logging.getLogger(__name__)

_LENGTH = Struct(">i")


def take_raw(frame: memoryview, request: PendingRequest, login: Login) -> None:
    """Pass a token to the login. The answer has no header either."""

    async def take() -> Any:
        return await login.take(bytes(frame))

    def taken(task: "asyncio.Task[Any]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            request.answer([_LENGTH.pack(len(task.result())), task.result()])
        elif isinstance(error, LoginFailed):
            request.violated(f"its login failed: {error}")
        else:
            log.error("client %s: its login failed", request.peer, exc_info=error)
            request.give_up("its login failed")

    request.run(take()).add_done_callback(taken)
