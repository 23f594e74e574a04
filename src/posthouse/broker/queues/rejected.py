"""Dead letters that never were in their queue: it was full."""

from typing import TYPE_CHECKING

from posthouse.broker.queues.dead_letters import Reason, publish_dead_letter
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message
from posthouse.records.references import NEVER

if TYPE_CHECKING:
    from posthouse.broker.queues.queue import Queue
    from posthouse.broker.queues.wave import Wave


def dead_letter_rejected(
    queue: "Queue", key: bytes, value: bytes, envelope: Envelope, now_ms: int, wave: "Wave"
) -> None:
    if queue.definition.dead_letter_exchange is None:
        return
    lane = queue.lane_for(envelope.priority)
    message = Message(
        queue, lane, -1, lane.log, queue.backing.name, -1, now_ms, key, value, envelope.headers, NEVER
    )
    publish_dead_letter(queue, message, Reason.TOO_LONG, now_ms, wave)
