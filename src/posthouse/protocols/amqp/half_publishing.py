"""Publishes that prepare a half message, or decide one. Each is confirmed by itself: when the message or the
decision is durable, and with a commit when the message is visible."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.half_messages.half_message import FullName, topics_of_publish
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.errors import PosthouseError, Unavailable
from posthouse.protocols.amqp.acknowledgements import Confirms, Part
from posthouse.protocols.amqp.errors import (
    Refused,
    ReplyCode,
    access_refused,
    precondition_failed,
    translated,
)
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.half_headers import (
    HalfStep,
    HalfWish,
    check_queue_of,
    half_wish,
    without_half_headers,
)
from posthouse.protocols.amqp.permissions import check_publish, check_queue
from posthouse.protocols.amqp.reply_to import PREFIX
from posthouse.protocols.amqp.session import Session

log = logging.getLogger(__name__)

_PAST: Final = {HalfStep.PREPARE: "prepared", HalfStep.COMMIT: "committed", HalfStep.ROLLBACK: "rolled back"}


class HalfChannel(Protocol):
    """The channel of the publish."""

    @property
    def session(self) -> Session: ...

    @property
    def confirms(self) -> Confirms | None: ...

    @property
    def is_closed(self) -> bool: ...

    def subject(self, kind: str, name: str) -> str: ...

    def return_message(
        self, code: ReplyCode, text: str, exchange: bytes, key: bytes, properties: bytes, body: bytes
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class HalfPublish:
    exchange: Exchange
    key: bytes
    body: bytes
    properties: bytes
    mandatory: bool


def publish_half(channel: HalfChannel, publish: HalfPublish) -> None:
    """Raises what closes the channel: what no program can mean. All else is a nack."""
    session = channel.session
    confirms = channel.confirms
    if confirms is None:
        raise precondition_failed("half messages need publisher confirms: send confirm.select first")
    session.half_messages.check_available()
    wish, envelope = _wish(session, publish)
    if wish.step is HalfStep.PREPARE:
        _check_prepare(channel, publish, wish, envelope)
    else:
        _check_decision(session, wish)
    part = session.unfinished.separate(len(publish.body))
    confirms.joined(part)
    pending = _Pending(channel, part, publish, wish)
    try:
        if wish.step is HalfStep.PREPARE:
            _prepare(session, publish, wish, envelope, pending)
        else:
            _decide(session, wish, pending)
    except PosthouseError as error:
        pending.end(error)


def _wish(session: Session, publish: HalfPublish) -> tuple[HalfWish, Envelope]:
    """What is wanted, and the envelope of the message as it will be published."""
    name = publish.exchange.name.encode()
    try:
        wish = half_wish(session.envelopes[name, publish.properties].attributes, publish.properties)
        return wish, session.envelopes[name, without_half_headers(publish.properties)]
    except PropertyError as error:
        raise Refused(ReplyCode(error.code), error.text) from None


def _check_prepare(channel: HalfChannel, publish: HalfPublish, wish: HalfWish, envelope: Envelope) -> None:
    session, exchange, key = channel.session, publish.exchange, publish.key
    if not exchange.name and key.startswith(PREFIX):
        raise precondition_failed("a direct reply cannot be a half message: it is not stored")
    if session.is_guarded:
        check_publish(session, exchange, key, envelope.more_keys)
        # Who decides may be another connection: a queue of one's own without permission is not enough.
        keys = (key, *envelope.more_keys)
        _check_topics(session, topics_of_publish(session.vhost, exchange.name, keys))
        check_queue(session, Operation.WRITE, check_queue_of(wish.group, wish.check_queue))
    if exchange.definition.internal:
        raise access_refused(f"cannot publish to internal {channel.subject('exchange', exchange.name)}")
    session.namespace.check_size(exchange, key, publish.body, envelope)


def _check_decision(session: Session, wish: HalfWish) -> None:
    if session.is_guarded:
        _check_topics(session, session.half_messages.topics_of_name(_full_name(session, wish)))


def _check_topics(session: Session, topics: Sequence[str]) -> None:
    for topic in topics:
        if not session.guard.allows(Operation.WRITE, Kind.TOPIC, topic):
            raise access_refused(f"write access to topic '{topic}' refused for user '{session.user}'")


def _full_name(session: Session, wish: HalfWish) -> FullName:
    return FullName(session.vhost, wish.group, wish.name)


def _prepare(
    session: Session, publish: HalfPublish, wish: HalfWish, envelope: Envelope, pending: "_Pending"
) -> None:
    session.half_messages.prepare_routed(
        session.namespace,
        publish.exchange.name,
        publish.key,
        publish.body,
        envelope,
        group=wish.group,
        name=wish.name,
        check_queue=wish.check_queue,
        first_check_seconds=wish.first_check_seconds,
        stored=pending.stored,
    )


def _decide(session: Session, wish: HalfWish, pending: "_Pending") -> None:
    half_messages = session.half_messages
    id = half_messages.id_of(_full_name(session, wish))
    deciding = half_messages.decide(id, group=wish.group, commit=wish.step is HalfStep.COMMIT)
    deciding.add_done_callback(pending.decided)


class _Pending:
    """A publish that is not confirmed yet."""

    __slots__ = ("_channel", "_part", "_return", "_wish")

    def __init__(self, channel: HalfChannel, part: Part, publish: HalfPublish, wish: HalfWish) -> None:
        self._channel = channel
        self._part = part
        self._wish = wish
        self._return = (
            partial(
                channel.return_message,
                exchange=publish.exchange.name.encode(),
                key=publish.key,
                properties=publish.properties,
                body=publish.body,
            )
            if publish.mandatory
            else None
        )

    def stored(self, result: int | PosthouseError) -> None:
        self.end(result if isinstance(result, PosthouseError) else None)

    def decided(self, done: "asyncio.Future[bool]") -> None:
        error = Unavailable("the broker is stopping") if done.cancelled() else done.exception()
        if error is None:
            if not done.result() and self._return is not None and not self._channel.is_closed:
                self._return(ReplyCode.NO_ROUTE, ReplyCode.NO_ROUTE.name)
            self.end(None)
        elif isinstance(error, PosthouseError):
            self.end(error)
        else:
            raise error

    def end(self, error: PosthouseError | None) -> None:
        if error is not None:
            wish, channel = self._wish, self._channel
            log.warning(
                'client %s: half message "%s" of group "%s" is not %s: %s',
                channel.session.peer,
                wish.name,
                wish.group,
                _PAST[wish.step],
                error,
            )
            if self._return is not None and not channel.is_closed:
                refusal = translated(error)
                self._return(refusal.code, refusal.text)
        self._part.ended(error)
