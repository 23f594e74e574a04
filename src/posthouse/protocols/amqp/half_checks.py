"""Asks AMQP producers what was decided: the half message goes into a queue whose consumers know."""

import logging
from dataclasses import replace

from posthouse.broker.half_messages.checks import CHECK_SECONDS
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.publishing import Publishing
from posthouse.model.errors import BadRequest, NotCoordinator, NotFound, PosthouseError
from posthouse.protocols.amqp.mapping.envelopes import envelope_of
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.half_headers import check_properties, check_queue_of

log = logging.getLogger(__name__)


class HalfChecks:
    def __init__(self, namespaces: Namespaces, publishing: Publishing) -> None:
        self._namespaces = namespaces
        self._publishing = publishing

    def ask(self, id: int, message: HalfMessage) -> bool:
        """False if there is no such queue, or it has no consumer. Also of messages without a name: AMQP
        clients could not decide them."""
        if not message.name:
            return False
        content = message.content
        name = check_queue_of(message.group, message.check_queue)
        try:
            namespace = self._namespaces.get(content.namespace)
            queue = namespace.queue_of_any_session(name)
            if not queue.consumer_count:
                return False
            exchange = "" if content.partition is not None else content.exchange
            envelope = envelope_of(exchange.encode(), check_properties(message))
            # The next check comes then; an answer to this one would be late.
            envelope = replace(envelope, expires_in_ms=CHECK_SECONDS * 1000)
            wave = self._publishing.wave
            namespace.publish_to(queue, content.key, content.value, envelope, wave)
        except (NotFound, NotCoordinator):
            return False
        except (BadRequest, PropertyError) as error:
            log.warning('half message %d cannot be asked about in queue "%s": %s', id, name, error)
            return False

        def written(error: PosthouseError | None) -> None:
            if error is not None:
                log.warning('half message %d was not asked about in queue "%s": %s', id, name, error)

        wave.on_end(written)
        return True
