"""The result of a handler."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from posthouse.protocols.amqp.channel import Channel

Answer: TypeAlias = bytes | Coroutine[Any, Any, bytes | None] | None
"""The frame to send; None for no answer; or a coroutine that returns it and holds back later requests."""

Handler: TypeAlias = Callable[[Channel, Any], Answer]
