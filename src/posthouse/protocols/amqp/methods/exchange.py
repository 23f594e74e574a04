"""exchange.declare, delete, bind, unbind."""

from pamqp.commands import Exchange

from posthouse.broker.access.operations import Operation
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.model.errors import UnknownExchange
from posthouse.protocols.amqp.arguments import check_match
from posthouse.protocols.amqp.blocking_bindings import check_blocking
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.definitions import check_same_exchange, exchange_definition
from posthouse.protocols.amqp.errors import access_refused, speaking_of
from posthouse.protocols.amqp.methods.answers import Answer
from posthouse.protocols.amqp.methods.names import check_not_default, check_not_reserved, stripped
from posthouse.protocols.amqp.permissions import check_exchange, check_onward


def declare(channel: Channel, method: Exchange.Declare) -> Answer:
    return _declare_later(channel, method) if channel.namespace.effects else _declare(channel, method)


async def _declare_later(channel: Channel, method: Exchange.Declare) -> bytes | None:
    """Wait for effects under way: they may delete the exchange."""
    await channel.namespace.effects.done()
    answer = _declare(channel, method)
    return answer if answer is None or isinstance(answer, bytes) else await answer


def _declare(channel: Channel, method: Exchange.Declare) -> Answer:
    method.exchange = name = stripped(method.exchange)
    subject = channel.subject("exchange", name)
    if method.passive:
        check_not_default(name)
        check_exchange(channel.session, Operation.DESCRIBE, name)
        channel.exchange(name)
        return None if method.nowait else channel.answer(Exchange.DeclareOk())
    definition = exchange_definition(method, subject)
    check_not_default(name)
    try:
        known = channel.namespace.router.exchange(name)
    except UnknownExchange:
        check_not_reserved("exchange", name)
        _check_new(channel, definition)
        return _make(channel, definition, nowait=method.nowait)
    check_exchange(channel.session, Operation.DESCRIBE, name)
    check_same_exchange(known.definition, definition, subject)
    return None if method.nowait else channel.answer(Exchange.DeclareOk())


def _check_new(channel: Channel, definition: ExchangeDefinition) -> None:
    check_exchange(channel.session, Operation.CREATE, definition.name)
    if definition.alternate is not None:
        check_exchange(channel.session, Operation.READ, definition.name)
        check_onward(channel.session, definition.alternate)


async def _make(channel: Channel, definition: ExchangeDefinition, *, nowait: bool) -> bytes | None:
    with speaking_of(channel.subject("exchange", definition.name)):
        await channel.namespace.declare_exchange(definition)
    return None if nowait else channel.answer(Exchange.DeclareOk())


async def delete(channel: Channel, method: Exchange.Delete) -> bytes | None:
    name = stripped(method.exchange)
    subject = channel.subject("exchange", name)
    check_not_default(name)
    check_exchange(channel.session, Operation.DELETE, name)
    if name.startswith("amq."):
        raise access_refused(f"deletion of system {subject} not allowed")
    await channel.session.settled()
    with speaking_of(subject):
        await channel.namespace.delete_exchange(name, if_unused=bool(method.if_unused))
    return None if method.nowait else channel.answer(Exchange.DeleteOk())


async def bind(channel: Channel, method: Exchange.Bind) -> bytes | None:
    binding = _binding(channel, method)
    if channel.exchange(binding.source).definition.kind is ExchangeKind.HEADERS:
        check_match(binding.arguments)
    channel.exchange(binding.destination)
    check_blocking(channel, binding)
    await channel.namespace.bind(binding)
    return None if method.nowait else channel.answer(Exchange.BindOk())


async def unbind(channel: Channel, method: Exchange.Unbind) -> bytes | None:
    """A no-op if the binding or the exchanges do not exist."""
    await channel.namespace.unbind(_binding(channel, method))
    return None if method.nowait else channel.answer(Exchange.UnbindOk())


def _binding(channel: Channel, method: Exchange.Bind | Exchange.Unbind) -> Binding:
    check_not_default(method.source, method.destination)
    check_exchange(channel.session, Operation.WRITE, method.destination)
    check_exchange(channel.session, Operation.READ, method.source)
    return Binding(
        source=method.source,
        destination=method.destination,
        to_exchange=True,
        key=method.routing_key.encode(),
        arguments=dict(method.arguments or {}),
    )
