"""Webhooks: requests, messages and circuits, by name."""

from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.webhooks.state import CircuitState
from posthouse.protocols.admin.metrics.family import counter, gauge, histogram
from posthouse.protocols.admin.metrics.samples import Samples

_NAME: Final = "webhook"

DELIVERED: Final = counter(
    "posthouse_webhook_delivered_messages_total", "Messages that endpoints have accepted.", _NAME
)
RETRIED: Final = counter(
    "posthouse_webhook_retried_messages_total", "Failed attempts after which a message is tried again.", _NAME
)
DEAD: Final = counter(
    "posthouse_webhook_dead_letters_total", "Messages that were refused, or failed too often.", _NAME
)
REQUESTS: Final = counter(
    "posthouse_webhook_requests_total", "Requests that have ended, by outcome.", _NAME, "outcome"
)
SECONDS: Final = histogram(
    "posthouse_webhook_request_duration_seconds", "Time until the answer, of requests that got one.", _NAME
)
IN_FLIGHT: Final = gauge("posthouse_webhook_in_flight_requests", "Requests that wait for an answer.", _NAME)
LAG: Final = gauge("posthouse_webhook_lag_messages", "Messages that are not delivered yet.", _NAME)
CIRCUIT: Final = gauge(
    "posthouse_webhook_circuit_open",
    "0 if requests are sent, 1 if the endpoint has failed too often, 0.5 while it is tried again.",
    _NAME,
)
PAUSED: Final = gauge("posthouse_webhook_paused", "1 if the webhook is paused.", _NAME)
FAMILIES: Final = (DELIVERED, RETRIED, DEAD, REQUESTS, SECONDS, IN_FLIGHT, LAG, CIRCUIT, PAUSED)

_OPEN: Final = {CircuitState.CLOSED: 0.0, CircuitState.HALF_OPEN: 0.5, CircuitState.OPEN: 1.0}


async def collect(broker: Broker, samples: Samples) -> None:
    """All by name: operators have made them, not clients."""
    webhooks = broker.webhooks
    for webhook in webhooks.all():
        name = webhook.name
        samples.add(LAG, webhooks.lag(webhook), name)
        samples.add(PAUSED, 0 if webhook.paused is None else 1, name)
        state = webhooks.state(name)
        if state is None:
            continue
        samples.add(DELIVERED, state.delivered, name)
        samples.add(RETRIED, state.retried, name)
        samples.add(DEAD, state.dead, name)
        samples.add(REQUESTS, state.requests - state.failed_requests, name, "delivered")
        samples.add(REQUESTS, state.failed_requests, name, "failed")
        samples.add(SECONDS, state.seconds, name)
        samples.add(IN_FLIGHT, state.in_flight, name)
        samples.add(CIRCUIT, _OPEN[state.circuit], name)
        await samples.turns.next()
