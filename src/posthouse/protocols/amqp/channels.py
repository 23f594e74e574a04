"""The channels of one connection: opens and closes them, and passes methods on."""

from pamqp.base import Frame as Command
from pamqp.commands import Channel as Methods

from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.errors import Refused, channel_error, command_invalid, not_allowed
from posthouse.protocols.amqp.methods.answers import Answer
from posthouse.protocols.amqp.methods.table import HANDLERS
from posthouse.protocols.amqp.session import Session


class Channels:
    """A channel that the broker has closed stays here until the client sends close-ok."""

    def __init__(
        self, session: Session, decoder: Decoder, channel_max: int, by_number: dict[int, Channel]
    ) -> None:
        """`by_number` is updated here; the conversation reads it."""
        self.by_number = by_number
        self._session = session
        self._decoder = decoder
        self._channel_max = channel_max

    def take(self, number: int, method: Command) -> Answer:
        channel = self.by_number.get(number)
        if channel is None:
            return self._open(number, method)
        if channel.is_closed:
            return self._closing(channel, method)
        handler = HANDLERS.get(type(method))
        if handler is not None:
            self._session.acks.flush()
            return handler(channel, method)
        if isinstance(method, Methods.Close):
            self._session.acks.flush()
            channel.close()
            del self.by_number[number]
            return channel.after_effects(encode.method(number, Methods.CloseOk()))
        if isinstance(method, Methods.Open):
            raise channel_error("second 'channel.open' seen")
        raise command_invalid("unimplemented method")

    def _open(self, number: int, method: Command) -> bytes:
        if not isinstance(method, Methods.Open):
            raise channel_error("expected 'channel.open'")
        if len(self.by_number) >= self._channel_max:
            raise not_allowed(
                f"number of channels opened ({len(self.by_number)}) has reached the negotiated channel_max "
                f"({self._channel_max})"
            )
        self.by_number[number] = Channel(number, self._session)
        opened = Methods.OpenOk()
        opened.channel_id = ""  # as RabbitMQ has it; pamqp writes a 0
        return encode.method(number, opened)

    def _closing(self, channel: Channel, method: Command) -> bytes | None:
        """A method on a channel that the broker has closed: only close and close-ok have an effect."""
        if isinstance(method, Methods.CloseOk):
            del self.by_number[channel.number]
            self._decoder.accept(channel.number)
        elif isinstance(method, Methods.Close):
            return encode.method(channel.number, Methods.CloseOk())
        return None

    def refuse(self, number: int, refusal: Refused, index: int) -> bool:
        """Close the channel because of the method with this index. False where there is none to close."""
        channel = self.by_number.get(number)
        if channel is None:
            return False
        if not channel.is_closed:
            self._session.acks.flush()
            channel.close()
            self._decoder.discard(number)
            close = Methods.Close(refusal.code, refusal.text, index >> 16, index & 0xFFFF)
            self._session.outbox.send(encode.method(number, close))
        return True

    def stop_deliveries(self) -> None:
        for channel in self.by_number.values():
            channel.is_flowing = False

    def resume_deliveries(self) -> None:
        """The client reads again what it is sent."""
        for channel in self.by_number.values():
            channel.raise_credit()
        self._session.acks.flush()

    def close_all(self) -> None:
        self._session.acks.flush()
        for channel in self.by_number.values():
            channel.close()
        self.by_number.clear()
