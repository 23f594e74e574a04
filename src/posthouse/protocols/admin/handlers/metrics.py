"""GET /metrics, for Prometheus and all that read its text format."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.metrics.collector import MetricsCollector
from posthouse.protocols.admin.metrics.text import CONTENT_TYPE, PrometheusText
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.front_end import Backend


def metrics_route(backend: Backend) -> Route:
    """Not one of the constant routes: it remembers which topics and queues it shows by name."""
    collector, text = MetricsCollector(backend), PrometheusText()

    async def scrape(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
        context.require_cluster(Operation.DESCRIBE)
        return Response(body=text.render(collector.collect()), content_type=CONTENT_TYPE)

    return Route(method="GET", path="/metrics", handler=scrape)
