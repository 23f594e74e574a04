"""Health checks: 200 with {"status": "ok"}, or 503 with a reason."""

from typing import Any, Final

from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.handlers.health import unready_reasons
from posthouse.protocols.admin.management.overview import listeners
from posthouse.protocols.admin.management.requests import namespace_of
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.router import Parameters, Route

_OK: Final = {"status": "ok"}
_ALIASES: Final = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqps": "amqp/ssl", "amqp/tls": "amqp/ssl"}


def _failed(reason: str, **details: Any) -> Response:
    return json_response({"status": "failed", "reason": reason, **details}, status=503)


async def _ready(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    reasons = await unready_reasons(context)
    return _failed("; ".join(reasons)) if reasons else json_response(_OK)


async def _alive(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    namespace_of(context, parameters)
    return await _ready(context, request, parameters)


async def _single_node(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    return json_response({"status": "ok", "reason": "single node cluster"})


async def _port(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    ports = [each["port"] for each in listeners(context)]
    wanted = parameters["port"]
    if wanted.isdecimal() and int(wanted) in ports:
        return json_response({"status": "ok", "port": int(wanted)})
    return _failed("No active listener", missing=int(wanted) if wanted.isdecimal() else wanted, ports=ports)


async def _protocol(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    protocols = sorted({each["protocol"] for each in listeners(context)})
    wanted = _ALIASES.get(parameters["protocol"], parameters["protocol"])
    if wanted in protocols:
        return json_response({"status": "ok", "protocol": wanted})
    return _failed("No active listener", missing=parameters["protocol"], protocols=protocols)


_CHECKS: Final = "/api/health/checks"
ROUTES: Final = (
    Route(method="GET", path="/api/aliveness-test/{vhost}", handler=_alive),
    Route(method="GET", path="/api/healthchecks/node", handler=_ready),
    Route(method="GET", path="/api/healthchecks/node/{node}", handler=_ready),
    Route(method="GET", path=f"{_CHECKS}/alarms", handler=_ready),
    Route(method="GET", path=f"{_CHECKS}/local-alarms", handler=_ready),
    Route(method="GET", path=f"{_CHECKS}/ready-to-serve-clients", handler=_ready),
    Route(method="GET", path=f"{_CHECKS}/is-in-service", handler=_ready),
    Route(method="GET", path=f"{_CHECKS}/virtual-hosts", handler=_ready),
    Route(method="GET", path=f"{_CHECKS}/node-is-mirror-sync-critical", handler=_single_node),
    Route(method="GET", path=f"{_CHECKS}/node-is-quorum-critical", handler=_single_node),
    Route(method="GET", path=f"{_CHECKS}/port-listener/{{port}}", handler=_port),
    Route(method="GET", path=f"{_CHECKS}/protocol-listener/{{protocol}}", handler=_protocol),
)
