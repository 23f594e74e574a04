"""Locks of queues, for consumers in order."""

from posthouse.protocols.rocketmq.codec.bodies import decode_queue_locks, encode_locked_queues
from posthouse.protocols.rocketmq.remoting.call import Call, check_may_consume


def lock(call: Call) -> None:
    wanted = decode_queue_locks(call.request.body)
    check_may_consume(call, wanted.group)
    taken = call.connection.server.locks.lock(wanted.group, wanted.client, wanted.queues)
    call.answer(body=encode_locked_queues(taken))


def unlock(call: Call) -> None:
    wanted = decode_queue_locks(call.request.body)
    check_may_consume(call, wanted.group)
    call.connection.server.locks.unlock(wanted.group, wanted.client, wanted.queues)
    call.answer()
