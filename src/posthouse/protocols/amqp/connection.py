"""The connection of one AMQP client: bytes in, frames out, handshake and close.

`flow_control` bounds its memory. Bodies of publishes that are not durable yet are in flight. Reading also
pauses while requests wait for an earlier one, and while the client does not read its answers.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import cast

from pamqp.commands import Connection as Methods

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.decoder import Decoder
from posthouse.protocols.amqp.codec.errors import FrameError
from posthouse.protocols.amqp.codec.framing import CONNECTION_OPEN, PROTOCOL, PROTOCOLS
from posthouse.protocols.amqp.conversation import FAULT, Asked, Conversation
from posthouse.protocols.amqp.errors import Refused, ReplyCode
from posthouse.protocols.amqp.heartbeats import Heartbeats
from posthouse.protocols.amqp.limits import UNKNOWN_FRAME_MAX
from posthouse.protocols.amqp.negotiation import LoginRefused
from posthouse.protocols.amqp.shared import Shared
from posthouse.protocols.amqp.transferring import Transferring, moved
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.introduction import GuardedTransport
from posthouse.protocols.listener import Listener
from posthouse.protocols.transfer import ReachedHolder

log = logging.getLogger(__name__)

_BLAMELESS = frozenset({ReplyCode.CONNECTION_FORCED, ReplyCode.RESOURCE_ERROR, ReplyCode.INTERNAL_ERROR})
"""Reply codes for closes that are not the fault of the client."""
_FORCED = "broker forced connection closure with reason 'shutdown'"
_DISMISSED = "this broker has lost its lease or its database, and may not serve queues; connect again"


class _Stage(Enum):
    OPEN = auto()
    """From the first byte on."""
    FINISHING = auto()
    """No more requests are executed. The connection is closed when the earlier ones are answered."""
    CLOSING = auto()
    """One side has sent connection.close, and the other one has yet to send close-ok."""
    DISMISSED = auto()
    """The broker may not answer any more. It has sent connection.close, and sends nothing else."""
    LINGERING = auto()
    """Close-ok was sent. The socket stays open for a while, so that a client that still writes reads it."""
    LOST = auto()


class AmqpConnection(asyncio.Protocol):
    """Also the host of its conversation: see `host.ConversationHost`."""

    def __init__(self, shared: Shared, listener: Listener, name: str) -> None:
        """`name` is that of the setting of the listener."""
        self._shared = shared
        self._name = name
        self._limits = shared.limits
        self._listener = listener
        self._stage = _Stage.OPEN
        self._unknown_bytes: int | None = shared.limits.unknown_bytes
        """Bytes that the client may still send before it has logged in."""
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._transferring: Transferring | None = None
        """Until it is open here. None in a broker that is alone, and where another one has transferred it."""
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        identity = PeerIdentity.of(
            transport,
            allow_cleartext=self._shared.allow_cleartext_passwords,
            has_tls=self._listener.has_tls,
        )
        self.peer = identity.peer
        self._is_introduced = identity.is_introduced
        largest = min(self._limits.frame_max, UNKNOWN_FRAME_MAX)
        if self._is_introduced:
            self._unknown_bytes = None
            largest = self._limits.frame_max  # what follows the introduction may come with it
        elif self._shared.transfer is not None:
            self._transferring = Transferring(self._shared.transfer, self._name, identity.address)
        self._since_ms = self._shared.namespaces.clock.now_ms()
        self._flow = FlowControl(
            loop,
            self._transport,
            self._shared.budget,
            identity.peer,
            limit=self._shared.buffer_bytes,
            is_behind=self._shared.publishing.is_behind,
            held=self._held_bytes,
            go_on=self._go_on,
            abort=self.abort,
        )
        self._outbox, self._pace = self._flow.outbox, self._flow.pace
        self._heartbeats = Heartbeats(loop, self._outbox, self._missed)
        self._decoder = Decoder(frame_max=largest, max_body=self._limits.max_body)
        self._conversation = Conversation(self._shared, self, identity, loop, self._flow, self._decoder)
        if self._listener.join(self):
            if self._is_introduced:
                self._listener.prove(self)  # at the other broker
            self._set_timer(self._limits.handshake_seconds, "did not open the connection in time")
        else:
            self._stage = _Stage.LOST
            self._transport.abort()

    @property
    def namespace(self) -> str | None:
        session = self._conversation.session
        return None if session is None else session.vhost

    @property
    def info(self) -> ConnectionInfo:
        session, negotiation = self._conversation.session, self._conversation.negotiation
        return ConnectionInfo(
            peer=self.peer,
            protocol="amqp",
            since_ms=self._since_ms,
            user=None if session is None else session.user,
            namespace=self.namespace,
            has_tls=self._listener.has_tls,
            is_paused=self._flow.is_paused,
            received_bytes=self._pace.received,
            sent_bytes=self._outbox.sent,
            held_bytes=self._flow.account.held,
            client=_client_name(negotiation.client_properties),
            client_properties=negotiation.client_properties,
            mechanism=negotiation.mechanism,
            heartbeat_seconds=negotiation.heartbeat,
            frame_max=negotiation.frame_max,
            channel_max=negotiation.channel_max,
            channels=tuple(channel.info for channel in self._conversation.channels),
        )

    def connection_lost(self, error: Exception | None) -> None:
        if self._stage is _Stage.OPEN and self._conversation.session is not None:
            log.warning("the AMQP connection from %s ended without a close", self.peer)
            if self._decoder.held and not self._flow.is_paused:
                self._listener.offended(self)
        self._stage = _Stage.LOST
        self._heartbeats.stop()
        self._cancel_timer()
        self._stop_transferring()
        self._flow.close()
        self._decoder.forget()
        self._end().add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._listener.leave(self)
        self._conversation.forget()

    def data_received(self, data: bytes) -> None:
        self._heartbeats.heard = True
        self._pace.received += len(data)
        if self._unknown_bytes is not None and not self._is_modest(len(data)):
            return
        if self._transferring is not None:
            self._transferring.feed(data)
        throttle = self._conversation.throttle
        if not throttle.quotas.is_empty and self._conversation.session is not None:
            with throttle.stopwatch:
                self._take(data)
            throttle.worked()
            self.regulate()
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        asked: Sequence[Asked]
        try:
            asked = self._decoder.feed(data)
        except FrameError as error:
            asked = [*error.events, (FAULT, 0, error)]
        self._conversation.take(asked, len(data))

    def _is_modest(self, size: int) -> bool:
        """Whether a client that has not logged in yet has sent no more than `unknown_bytes`."""
        assert self._unknown_bytes is not None
        self._unknown_bytes -= size
        if self._unknown_bytes >= 0:
            return True
        most = self._limits.unknown_bytes
        self.close_because(Refused(ReplyCode.FRAME_ERROR, f"more than {most} bytes before the login"), 0)
        return False

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._conversation.deliver_again()
        self.regulate()

    def _held_bytes(self) -> int:
        return self._decoder.held

    def _go_on(self) -> None:
        self.regulate()
        self._conversation.deliver_again()

    def regulate(self) -> None:
        stage = self._stage
        if stage is _Stage.LOST:
            return  # its account is closed: bytes of waves that end now must not be counted again
        conversation = self._conversation
        if stage is _Stage.FINISHING and conversation.is_idle:
            session = conversation.session
            is_moved = session is not None and not self._shared.serves(session.vhost)
            self.close_because(moved() if is_moved else Refused(ReplyCode.CONNECTION_FORCED, _FORCED), 0)
            return
        flow = self._flow
        flow.in_flight = conversation.unfinished.size
        flow.count()
        if stage is _Stage.OPEN:
            # Answers still go to a congested client: many clients write without reading, and would wait for
            # the broker as the broker for them. Only a client that takes no answers either is not read from.
            is_full = self._transferring is not None and self._transferring.is_full
            flow.regulate(held_back=conversation.is_behind or self._outbox.is_overfull or is_full)
        else:
            flow.resume()
        self._heartbeats.is_excused = flow.is_paused

    # Opening

    def greeted(self, header: bytes) -> None:
        if header in PROTOCOLS:
            negotiation = self._conversation.negotiation
            start = negotiation.begin()
            if self._is_introduced:
                return
            self._outbox.send(encode.method(0, start))
            if not negotiation.mechanisms:
                log.warning(
                    "the AMQP client at %s cannot log in: passwords are taken over TLS, or with "
                    "allow_cleartext_passwords",
                    self.peer,
                )
            return
        log.warning("the client at %s does not speak AMQP 0-9-1: it began with %r", self.peer, header)
        self._listener.offended(self)
        self._outbox.send(PROTOCOL)
        self._leave()

    def logged_in(self) -> None:
        self._unknown_bytes = None

    def tuned(self) -> None:
        negotiation = self._conversation.negotiation
        self._decoder.frame_max = negotiation.frame_max
        self._heartbeats.start(negotiation.heartbeat)

    def is_transferred(self) -> bool:
        negotiation = self._conversation.negotiation
        if self._shared.serves(negotiation.vhost):
            return False
        if self._transferring is None:
            raise moved()
        self._transferring.begin(
            negotiation,
            self._conversation.proven,
            reached=self._transfer,
            failed=lambda refusal: self.close_because(refusal, CONNECTION_OPEN),
        )
        self._cancel_timer()
        self._listener.prove(self)
        self._listener.pass_on(self)
        return True

    def _transfer(self, holder: ReachedHolder) -> None:
        transferring = self._transferring
        if transferring is None or self._stage is not _Stage.OPEN or self._transport.is_closing():
            holder.close()
            return
        self._stage = _Stage.LOST
        self._heartbeats.stop()
        self._outbox.flush()
        self._flow.close()
        self._decoder.forget()
        left = self._conversation.transfer()
        transferring.hand_over(holder, self, self._listener, self._transport, left)

    def _stop_transferring(self) -> None:
        if self._transferring is not None:
            self._transferring.cancel()
            self._transferring = None

    def opened(self) -> None:
        self._transferring = None
        self._cancel_timer()
        self._listener.prove(self)

    # Closing

    def close_asked_for(self) -> None:
        """Send close-ok when channels are closed and exclusive queues deleted, as RabbitMQ does."""
        if self._stage is _Stage.DISMISSED:
            self._leave()
        elif self._stage is _Stage.CLOSING and self._ending is None:
            self._agree()
        elif self._stage in (_Stage.OPEN, _Stage.FINISHING):
            self._stage = _Stage.CLOSING
            self._decoder.close()
            self._end().add_done_callback(lambda _: self._agree())

    def _agree(self) -> None:
        if self._stage is _Stage.CLOSING:
            self._stage = _Stage.LINGERING
            self._outbox.send(encode.method(0, Methods.CloseOk()))
            self._cancel_timer()
            self._timer = self._loop.call_later(self._limits.lingering_seconds, self._leave)
            self.regulate()

    def close_agreed(self) -> None:
        if self._stage in (_Stage.CLOSING, _Stage.DISMISSED, _Stage.LINGERING):
            self._leave()

    def close_because(self, refusal: Refused, index: int) -> None:
        if self._stage not in (_Stage.OPEN, _Stage.FINISHING):
            return
        seconds = self._limits.closing_seconds
        if self._stage is _Stage.FINISHING:
            seconds = self._limits.finishing_seconds
        else:
            log.warning("closing the AMQP connection from %s: %s", self.peer, refusal.text)
            if refusal.code not in _BLAMELESS and not self._is_of_another_broker(refusal):
                self._listener.offended(self)
        self._stage = _Stage.CLOSING
        self._decoder.close()
        self._stop_transferring()
        self._conversation.end_channels()
        can_be_told = self._is_introduced or self._conversation.negotiation.can_be_told
        if isinstance(refusal, LoginRefused) and not can_be_told:
            # The client does not understand a close here. The delay slows down password guessing.
            self._set_timer(self._limits.refusal_seconds, "could not log in")
            return
        close = Methods.Close(refusal.code, refusal.text, index >> 16, index & 0xFFFF)
        self._outbox.send(encode.method(0, close))
        self._set_timer(seconds, "did not agree to the close")
        self.regulate()

    def _is_of_another_broker(self, refusal: Refused) -> bool:
        """The client has logged in there. That broker may be behind."""
        return self._is_introduced and isinstance(refusal, LoginRefused)

    def _leave(self) -> None:
        """Close the socket when all frames are written."""
        self._stage = _Stage.CLOSING
        self._outbox.gathered()
        self._cancel_timer()
        # A client that does not take what was written before would keep the connection open for ever.
        if self._outbox.is_congested:
            self._transport.abort()
        else:
            self._transport.close()

    def _missed(self) -> None:
        log.warning("the AMQP client at %s missed its heartbeats", self.peer)
        self.abort()

    def finish(self) -> None:
        if self._stage is _Stage.LINGERING or (
            self._stage is _Stage.OPEN and self._conversation.session is None
        ):
            self._leave()
        elif self._stage is _Stage.OPEN:
            self._stage = _Stage.FINISHING
            self._conversation.stop()
            self.regulate()

    def tick(self) -> bool:
        seconds = self._outbox.untaken_seconds()
        if seconds >= self._limits.stalled_seconds:
            log.warning("closing the AMQP connection from %s: it read nothing for %d s", self.peer, seconds)
            self.abort()
            return False
        self.regulate()
        if self._outbox.is_memory_short:
            self._conversation.deliver_again()
        return self._flow.is_too_slow(in_frame=self._decoder.held > 0)

    def abort(self) -> None:
        self._stage = _Stage.LOST
        self._transport.abort()

    def dismiss(self) -> None:
        """Frames that were not written yet may be answers, which the client must not get any more. The socket
        stays open until the client agrees: closing it while the client sends would reset the connection, and
        the client might not see the reason."""
        if self._stage is _Stage.DISMISSED:
            return
        is_open = self._stage in (_Stage.OPEN, _Stage.FINISHING) and self._conversation.session is not None
        if not is_open or self._transport.is_closing() or self._transport.get_write_buffer_size():
            self.abort()
            return
        self._stage = _Stage.DISMISSED
        self._outbox.close()
        self._decoder.close()
        self._conversation.end_channels()
        refusal = Refused(ReplyCode.CONNECTION_FORCED, _DISMISSED)
        close = encode.method(0, Methods.Close(refusal.code, refusal.text, 0, 0))
        if isinstance(self._transport, GuardedTransport):
            self._transport.write_last(close)
        else:
            self._transport.write(close)
        self._set_timer(self._limits.finishing_seconds, "did not agree to the close")
        self.regulate()

    def _end(self) -> "asyncio.Task[None]":
        if self._ending is None:
            self._ending = self._loop.create_task(self._conversation.end())
        return self._ending

    def _set_timer(self, seconds: float, fault: str) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, self._too_late, fault)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self, fault: str) -> None:
        self._timer = None
        log.warning("the AMQP client at %s %s", self.peer, fault)
        if self._stage is _Stage.OPEN:
            self._listener.offended(self)
        self.abort()


def _client_name(properties: Mapping[str, object]) -> str:
    """Product and version, and what the application calls its connection."""
    told = [properties.get(name) for name in ("product", "version")]
    software = " ".join(str(each) for each in told if each)
    name = properties.get("connection_name")
    return f"{software} ({name})" if name else software
