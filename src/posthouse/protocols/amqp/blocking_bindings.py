"""Permission to bind queues that block publishers (`x-overflow: block`).

To bind a queue takes permission to read from the exchange. A reader must not be able to stop those who write,
so a binding that leads to such a queue takes permission to write to every exchange that leads to it.
"""

from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.routing.definitions import Binding
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.permissions import check_exchange


def check_blocking(channel: Channel, binding: Binding) -> None:
    """Raises Refused."""
    if channel.session.is_guarded and _leads_to_blocking(channel, binding):
        for name in _upstream(channel, binding.source):
            check_exchange(channel.session, Operation.WRITE, name)


def _leads_to_blocking(channel: Channel, binding: Binding) -> bool:
    router = channel.namespace.router
    seen: set[str] = set()
    ahead = [binding]
    while ahead:
        each = ahead.pop()
        if not each.to_exchange:
            queue = channel.namespace.queues.get(each.destination)
            if queue is not None and queue.definition.overflow is OverflowPolicy.BLOCK:
                return True
        elif each.destination not in seen:
            seen.add(each.destination)
            ahead += router.bindings(source=each.destination)
            alternate = _alternates(channel).get(each.destination)
            if alternate is not None:
                ahead.append(Binding(source=each.destination, destination=alternate, to_exchange=True))
    return False


def _upstream(channel: Channel, source: str) -> list[str]:
    """The exchange, and all whose messages may get to it."""
    router = channel.namespace.router
    alternates = _alternates(channel)
    found = {source: None}
    for name in (names := [source]):
        before = [each.source for each in router.bindings(destination=name, to_exchange=True)]
        before += [each for each, alternate in alternates.items() if alternate == name]
        names += [each for each in dict.fromkeys(before) if each not in found]
        found |= dict.fromkeys(before)
    return list(found)


def _alternates(channel: Channel) -> dict[str, str]:
    exchanges = channel.namespace.router.exchanges()
    return {
        each.name: each.definition.alternate for each in exchanges if each.definition.alternate is not None
    }
