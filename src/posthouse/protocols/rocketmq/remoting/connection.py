"""The connection of one client: frames in, answers out, in any order.

`flow_control` bounds its memory: requests that are not answered yet are in flight. Reading also pauses while
the client does not read its answers.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final, cast

from posthouse.broker.access.guard import CLOSED, Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.model.errors import LoginFailed, Unavailable
from posthouse.protocols.authenticator import Authenticator, PeerIdentity
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.listener import Listener
from posthouse.protocols.rocketmq.codec.bodies import (
    MessageQueue,
    encode_offset_list,
    encode_offset_table,
)
from posthouse.protocols.rocketmq.codec.codes import CPP, RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.commands import ONEWAY, Command
from posthouse.protocols.rocketmq.codec.errors import BadFrame, BadHost, Malformed
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder, encode_command
from posthouse.protocols.rocketmq.codec.hosts import Host, pack_host
from posthouse.protocols.rocketmq.messages import UNKNOWN_HOST
from posthouse.protocols.rocketmq.names import BROKER
from posthouse.protocols.rocketmq.remoting.call import Call
from posthouse.protocols.rocketmq.remoting.charges import RequestCharges
from posthouse.protocols.rocketmq.remoting.dispatch import API_NAMES, HANDLERS, UNKNOWN_API, Handler
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.transactions import check_fields
from posthouse.protocols.rocketmq.remoting.logins import SIGNATURE, SignedRequests
from posthouse.protocols.rocketmq.remoting.server import RemotingServer
from posthouse.protocols.stopwatch import Timed
from posthouse.settings import Address

log = logging.getLogger(__name__)

PROTOCOL: Final = "rocketmq"
_CALL_BYTES: Final = 2048
"""What a request takes beside its bytes: so requests that wait for messages are counted, too."""
_FIELD_BYTES: Final = 100
"""What a field takes beside its characters."""
_READS_AT_ONCE: Final = 4
_LONGEST_LANGUAGE: Final = 20
_MOST_OPAQUE: Final = 0x7FFFFFFF
_MOST_ASKED: Final = 1000
ANSWER_SECONDS: Final = 5.0
"""For a client to answer the broker."""


class RemotingConnection(asyncio.Protocol):
    def __init__(self, server: RemotingServer, advertised: Address | None, listener: Listener) -> None:
        self.server = server
        self.guard: Guard = CLOSED
        self.peer = "?"
        self.host = UNKNOWN_HOST
        self.own_host = UNKNOWN_HOST
        self.address = Address("127.0.0.1", 0)
        self._advertised = advertised
        self._listener = listener
        self._decoder = FrameDecoder(max_frame=server.settings.max_request_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self.reading = asyncio.Semaphore(_READS_AT_ONCE)
        self.searching = asyncio.Semaphore(1)
        self._writable = asyncio.Event()
        self._calls = 0
        self._opaque = 0
        self._asked: dict[int, asyncio.Future[Command]] = {}
        """What the client has been asked, by `opaque`."""
        self._software = ""
        self.language = ""
        self.version = 0
        self.is_finishing = False
        self._is_lost = False

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        server = self.server
        identity = PeerIdentity.of(transport, allow_cleartext=server.settings.allow_cleartext_passwords)
        self.peer = identity.peer
        self.address = self._advertised or Address.of_peer(transport.get_extra_info("sockname"))
        self.host, self.own_host = _packed(identity.address), _packed(self.address)
        self._since_ms = server.broker.now_ms()
        self._flow = FlowControl(
            self._loop,
            self._transport,
            server.budget,
            self.peer,
            limit=server.settings.connection_buffer_bytes,
            is_behind=server.broker.is_behind,
            held=lambda: self._decoder.held,
            go_on=self._regulate,
            abort=self.abort,
        )
        self._authenticator = Authenticator(
            server.broker.access, identity, PROTOCOL, admitted=self._admitted, revoked=self.abort
        )
        if not self._listener.join(self):
            self._is_lost = True
            self._transport.abort()
            return
        self._charges = RequestCharges(server.broker.access.quotas, self._flow.throttle)
        self._signed = SignedRequests(self._authenticator) if self._authenticator.is_required else None
        if self._signed is None:
            self._authenticator.admit_anonymous()

    def _admitted(self, guard: Guard) -> None:
        self.guard = guard
        self._charges.user = guard.principal.name

    def introduce(self, client_id: str) -> None:
        self._charges.client = self._charges.client or client_id

    def connection_lost(self, error: Exception | None) -> None:
        if self._decoder.held and not self._is_lost and not self._flow.is_paused:
            log.warning("the RocketMQ connection from %s ended in the middle of a request", self.peer)
            self._listener.offended(self)
        self._is_lost = True
        self._decoder.forget()
        for asked in list(self._asked.values()):
            self._give_up(asked)
        for task in self._tasks:
            task.cancel()
        self.server.clients.leave(self)
        self._listener.leave(self)
        self._authenticator.close()
        self._flow.close()

    def data_received(self, data: bytes) -> None:
        self._flow.pace.received += len(data)
        if self.is_finishing:
            return
        fault = None
        try:
            requests = self._decoder.feed(data)
        except BadFrame as error:
            requests, fault = list(error.commands), error
        for request in requests:
            if request.is_response:
                self._answered(request)
            else:
                self._start(request)
        if fault is None:
            self._flow.count()
            self._regulate()
        elif not self._is_lost:
            log.warning("closing the RocketMQ connection from %s: %s", self.peer, fault)
            self._listener.offended(self)
            if self._flow.outbox.is_congested:
                self.abort()  # it may never read what is to be sent before the end
            else:
                self._outbox_flushed_and_closed()

    def pause_writing(self) -> None:
        self._flow.outbox.pause()
        self._regulate()

    def resume_writing(self) -> None:
        self._flow.outbox.resume()
        self._writable.set()
        self._regulate()

    def _regulate(self) -> None:
        if not self._is_lost:
            self._flow.regulate(held_back=self._flow.outbox.is_congested)

    # Requests

    def _start(self, request: Command) -> None:
        code = request.code
        fields = request.fields
        size = len(request.body) + sum(map(len, fields)) + sum(map(len, fields.values()))
        held = size + _CALL_BYTES + _FIELD_BYTES * len(fields)
        metrics = self.server.requests.of(PROTOCOL, API_NAMES.get(code, UNKNOWN_API))
        call = Call(self, request, held, metrics, self._loop.time())
        self._calls += 1
        self._flow.in_flight += held
        is_free = self._charges.quotas.is_empty
        handler = HANDLERS.get(code)
        try:
            if self._signed is not None:
                self._check_signature(self._signed, request)
            if handler is None:
                raise Refused(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {code} is not supported"
                )
            if not self._software:
                self._prove(request)
            waiting = handler(call) if is_free else self._charged(handler, call, size)
        except Exception as error:  # noqa: BLE001 - told apart in `errors`
            call.fail(error)
            return
        if waiting is not None:
            finishing = self._finish(call, waiting)
            task = self._loop.create_task(finishing if is_free else Timed(finishing, self._charges.stopwatch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if not is_free:
                task.add_done_callback(self._charge_work)

    def _charged(self, handler: Handler, call: Call, size: int) -> Coroutine[Any, Any, None] | None:
        charges = self._charges
        charges.received(call.request.code, size)
        with charges.stopwatch:
            waiting = handler(call)
        charges.worked()
        return waiting

    def _charge_work(self, task: "asyncio.Task[None]") -> None:
        if not self._is_lost:
            self._charges.worked()
            self._regulate()

    async def _finish(self, call: Call, waiting: Coroutine[Any, Any, None]) -> None:
        try:
            await waiting
        except Exception as error:  # noqa: BLE001 - told apart in `errors`
            call.fail(error)

    def _check_signature(self, signed: SignedRequests, request: Command) -> None:
        try:
            signed.check(request)
        except LoginFailed:
            if SIGNATURE in request.fields:  # otherwise its client does not know that it has to log in
                self._flow.throttle.extend(self._listener.offended(self))
            raise

    def _prove(self, request: Command) -> None:
        self.language, self.version = request.language[:_LONGEST_LANGUAGE], request.version
        self._software = f"{self.language} {self.version}"
        self._listener.prove(self)

    def answer(self, call: Call, command: Command) -> None:
        change = self.guard.last_change
        if change:  # what was done is in the audit log before it is answered
            audit = self.server.broker.access.audit
            audit.when_written(change, partial(self._answer, call, command))
        else:
            self._answer(call, command)

    def _answer(self, call: Call, command: Command) -> None:
        call.metrics.seconds.observe(self._loop.time() - call.begun)
        self._calls -= 1
        if self._is_lost:
            return
        flow = self._flow
        flow.in_flight -= call.size
        if not call.request.is_oneway:
            try:
                flow.outbox.send(encode_command(command))
            except Malformed as error:  # no client could read it
                log.error("an answer to %s cannot be encoded: %s", self.peer, error)
                self.abort()
                return
        if not self._charges.quotas.is_empty:
            self._charges.answered(call.request.code, len(command.body))
        if flow.is_paused or flow.throttle.is_on:
            flow.count()
            self._regulate()
        if self.is_finishing and not self._calls:
            self._outbox_flushed_and_closed()

    def members_changed(self, group: str) -> None:
        # A client that does not read looks for members every 20 s anyhow.
        self._tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def check_transaction(self, id: int, message: HalfMessage) -> bool:
        if not all(self.guard.may(Operation.WRITE, Kind.TOPIC, topic) for topic in message.topics):
            return False  # it would get the message, and could not decide
        return self._tell(RequestCode.CHECK_TRANSACTION_STATE, *check_fields(id, message, self.own_host))

    def reset_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        fields = {"group": group, "topic": topic, "timestamp": "-1", "isForce": "true"}
        table = {
            MessageQueue(topic=topic, broker=BROKER, queue=queue): offset for queue, offset in offsets.items()
        }
        encode = encode_offset_list if self.language == CPP else encode_offset_table
        self._tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, encode(table))

    def ask(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> "asyncio.Future[Command]":
        if len(self._asked) >= _MOST_ASKED or not self._tell(code, fields, body, flag=0):
            raise Unavailable(f"the client at {self.peer} cannot be asked now")
        opaque = self._opaque
        answer = self._asked[opaque] = self._loop.create_future()
        deadline = self._loop.call_later(ANSWER_SECONDS, self._give_up, answer)

        def ended(_: "asyncio.Future[Command]") -> None:
            deadline.cancel()
            self._asked.pop(opaque, None)

        answer.add_done_callback(ended)
        return answer

    def _answered(self, command: Command) -> None:
        asked = self._asked.pop(command.opaque, None)  # None if it comes too late
        if asked is not None and not asked.done():
            asked.set_result(command)

    def _give_up(self, asked: "asyncio.Future[Command]") -> None:
        if not asked.done():
            asked.set_exception(Unavailable(f"the client at {self.peer} does not answer"))

    def _tell(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b"", *, flag: int = ONEWAY
    ) -> bool:
        """A request of the broker. False if the client is gone or does not read."""
        if self._is_lost or self._flow.outbox.is_congested:
            return False
        self._opaque = self._opaque % _MOST_OPAQUE + 1
        request = Command(code, self._opaque, flag, fields=fields, body=body)
        self._flow.outbox.send(encode_command(request))
        return True

    async def writable(self) -> None:
        while self._flow.outbox.is_congested:
            self._writable.clear()
            await self._writable.wait()

    # What the listener asks for

    @property
    def info(self) -> ConnectionInfo:
        flow = self._flow
        return ConnectionInfo(
            peer=self.peer,
            protocol=PROTOCOL,
            since_ms=self._since_ms,
            client=self._software,
            user=self._authenticator.user,
            has_tls=self._transport.get_extra_info("ssl_object") is not None,
            is_paused=flow.is_paused,
            received_bytes=flow.pace.received,
            sent_bytes=flow.outbox.sent,
            held_bytes=flow.account.held,
        )

    def finish(self) -> None:
        """Requests in flight are answered; those that wait for messages have been woken."""
        self.is_finishing = True
        if not self._calls:
            self._outbox_flushed_and_closed()

    def _outbox_flushed_and_closed(self) -> None:
        self._flow.outbox.flush()
        self._transport.close()

    def abort(self) -> None:
        self._is_lost = True
        self._transport.abort()

    def tick(self) -> bool:
        self.server.sweep()
        self._flow.count()
        self._regulate()
        return self._flow.is_too_slow(in_frame=self._decoder.held > 0)


def _packed(address: Address) -> bytes:
    try:
        return pack_host(Host(address=address.host, port=address.port))
    except BadHost:
        return UNKNOWN_HOST  # advertised by name
