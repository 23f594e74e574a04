"""What a handler gives back."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from posthouse.protocols.amqp.channel import Channel

Answer: TypeAlias = bytes | Coroutine[Any, Any, bytes | None] | None
"""The frame to be sent, None for silence, or a coroutine that gives it and holds up everything behind it."""

Handler: TypeAlias = Callable[[Channel, Any], Answer]
