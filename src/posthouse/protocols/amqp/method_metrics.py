"""Requests of AMQP clients by method. Publishes, deliveries and acknowledgements are counted in batches."""

from typing import Final

from pamqp.commands import INDEX_MAPPING

from posthouse.protocols.amqp.codec.access import Request
from posthouse.protocols.amqp.codec.framing import BASIC_ACK, BASIC_PUBLISH
from posthouse.protocols.request_metrics import ApiMetrics, RequestMetrics

_PROTOCOL: Final = "amqp"
_NAMES: Final[dict[int, str]] = {
    index: str(method.name).lower()  # type: ignore[attr-defined]
    for index, method in [*INDEX_MAPPING.items(), (Request.index, Request)]
}


class MethodMetrics:
    """One for all connections."""

    def __init__(self, requests: RequestMetrics) -> None:
        self._requests = requests
        self._by_index: dict[int, ApiMetrics] = {}
        self.publish = self._known(BASIC_PUBLISH, "basic.publish")
        """Timed from a publish until its wave has ended: for most clients, until the confirm."""
        self.ack = self._known(BASIC_ACK, "basic.ack")
        """Messages that were acknowledged outside transactions."""
        self.deliver = requests.of(_PROTOCOL, "basic.deliver")
        """Messages that were delivered to consumers."""

    def of(self, index: int) -> ApiMetrics | None:
        """Of the method with this index; None where there is no such method."""
        found = self._by_index.get(index)
        if found is None:
            name = _NAMES.get(index)
            if name is None:
                return None
            found = self._known(index, name)
        return found

    def _known(self, index: int, name: str) -> ApiMetrics:
        metrics = self._by_index[index] = self._requests.of(_PROTOCOL, name)
        return metrics
