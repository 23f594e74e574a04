"""tx.select, commit, rollback."""

from dataclasses import dataclass, field

from pamqp.commands import Tx

from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.deliveries import by_queue
from posthouse.protocols.amqp.errors import Refused, precondition_failed
from posthouse.protocols.amqp.transactions import ChannelTransaction, Collected, TransactionalPublish


@dataclass(frozen=True, slots=True)
class _CommitOutcome:
    """What has to follow when a transaction is durable."""

    unroutable: list[TransactionalPublish] = field(default_factory=list)
    """To be returned to the client: they were mandatory."""
    replies: list[TransactionalPublish] = field(default_factory=list)


def select(channel: Channel, method: Tx.Select) -> bytes:
    if channel.confirms is not None:
        raise precondition_failed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = ChannelTransaction(channel.session.limits.max_transaction)
    return channel.answer(Tx.SelectOk())


async def commit(channel: Channel, method: Tx.Commit) -> bytes | None:
    committed = await _commit(channel, _transaction(channel).take())
    if channel.is_closed:
        return None
    for each in committed.replies:
        channel.publish_reply(each.key, each.properties, each.body, mandatory=each.mandatory)
    for each in committed.unroutable:
        channel.return_unroutable(each.exchange.name.encode(), each.key, each.properties, each.body)
    return channel.answer(Tx.CommitOk())


def rollback(channel: Channel, method: Tx.Rollback) -> bytes:
    channel.deliveries.put_back(_transaction(channel).take().deliveries())
    return channel.answer(Tx.RollbackOk())


def _transaction(channel: Channel) -> ChannelTransaction:
    if channel.transaction is None:
        raise precondition_failed("channel is not transactional")
    return channel.transaction


async def _commit(channel: Channel, collected: Collected) -> _CommitOutcome:
    """Returns when it is durable.

    Messages and acknowledgements are one write. Rejections follow it: should the broker fail between the
    two, the messages are delivered again, and their next consumer rejects them again.
    """
    wave = TransactionWave(channel.session.unfinished.publishing)
    committed = _CommitOutcome()
    try:
        for each in collected.publishes:
            if each.is_reply:
                committed.replies.append(each)
            elif (
                not channel.namespace.publish(each.exchange, each.key, each.body, each.envelope, wave)
                and each.mandatory
            ):
                committed.unroutable.append(each)
        for queue, messages in by_queue(collected.acked).items():
            queue.ack(messages, wave)
        committing = wave.commit()
    except PosthouseError as error:
        wave.abandon()
        raise _failed(channel, collected, error) from error
    try:
        await committing
    except PosthouseError as error:
        raise _failed(channel, collected, error) from error
    channel.freed(collected.acked)
    for rejected in collected.rejected:
        channel.settle_rejected(list(rejected.deliveries), rejected.requeue)
    return committed


def _failed(channel: Channel, collected: Collected, error: PosthouseError) -> Refused:
    """The transaction has had no effect. The channel is closed, if it is not closed already."""
    channel.deliveries.put_back(collected.deliveries())
    if channel.is_closed:
        channel.release_all()
    return precondition_failed(f"the transaction cannot be committed: {error}")
