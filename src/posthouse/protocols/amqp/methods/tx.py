"""tx.select, commit, rollback."""

from pamqp.commands import Tx

from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.errors import precondition_failed
from posthouse.protocols.amqp.publishes import give_back, reply
from posthouse.protocols.amqp.transactions import Transaction


def select(channel: Channel, method: Tx.Select) -> bytes:
    if channel.confirms is not None:
        raise precondition_failed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        session = channel.session
        channel.transaction = Transaction(session.unfinished.publishing, session.limits.max_transaction)
    return channel.answer(Tx.SelectOk())


async def commit(channel: Channel, method: Tx.Commit) -> bytes | None:
    committed = await _transaction(channel).commit(channel)
    if channel.is_closed:
        return None
    for each in committed.replies:
        reply(channel, each.key, each.properties, each.body, mandatory=each.mandatory)
    for each in committed.unroutable:
        give_back(channel, each.exchange.name.encode(), each.key, each.properties, each.body)
    return channel.answer(Tx.CommitOk())


def rollback(channel: Channel, method: Tx.Rollback) -> bytes:
    channel.deliveries.put_back(_transaction(channel).forget())
    return channel.answer(Tx.RollbackOk())


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise precondition_failed("channel is not transactional")
    return channel.transaction
