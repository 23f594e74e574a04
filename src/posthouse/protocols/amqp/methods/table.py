"""The handlers by method. Other methods are not for channels, or are sent only by brokers."""

from typing import Final

from pamqp.base import Frame as Command
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from posthouse.protocols.amqp.codec.access import Request
from posthouse.protocols.amqp.methods import access, basic, channel, confirm, exchange, queue, tx
from posthouse.protocols.amqp.methods.answers import Handler

HANDLERS: Final[dict[type[Command], Handler]] = {
    Request: access.request,
    Channel.Flow: channel.flow,
    Exchange.Declare: exchange.declare,
    Exchange.Delete: exchange.delete,
    Exchange.Bind: exchange.bind,
    Exchange.Unbind: exchange.unbind,
    Queue.Declare: queue.declare,
    Queue.Bind: queue.bind,
    Queue.Unbind: queue.unbind,
    Queue.Purge: queue.purge,
    Queue.Delete: queue.delete,
    Basic.Qos: basic.qos,
    Basic.Consume: basic.consume,
    Basic.Cancel: basic.cancel,
    Basic.CancelOk: basic.cancel_ok,
    Basic.Get: basic.get,
    Basic.Nack: basic.nack,
    Basic.Reject: basic.reject,
    Basic.Recover: basic.recover,
    Basic.RecoverAsync: basic.recover_async,
    Confirm.Select: confirm.select,
    Tx.Select: tx.select,
    Tx.Commit: tx.commit,
    Tx.Rollback: tx.rollback,
}
