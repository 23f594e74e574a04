"""Whether the broker is alive, and whether it is ready to serve. For probes, which have no login.

Ready means: storage is open and takes writes, the disk is above its reserve, and every listener is open. Of a
shared storage also: the lease is renewed, and the object store answers. A client that is not logged in learns
the answer, not the reasons.
"""

from typing import Final

from posthouse.broker.access.guard import CLOSED
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response, json_response
from posthouse.protocols.admin.router import Parameters, Route
from posthouse.protocols.membership import Membership


async def _live(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    return json_response({"status": "ok"})


async def _ready(context: CallContext, request: HttpRequest, parameters: Parameters) -> Response:
    reasons = await unready_reasons(context)
    answer: dict[str, object] = {"status": "unready" if reasons else "ok"}
    if context.guard is not CLOSED:
        answer["reasons"] = reasons
    return json_response(answer, status=503 if reasons else 200)


async def unready_reasons(context: CallContext) -> list[str]:
    condition = await context.broker.storage_condition()
    reasons = []
    if condition.refusal is not None:
        reasons.append(f"storage takes no writes: {condition.refusal}")
    if not condition.has_reserve:
        reasons.append(
            f"the disk of the data directory is full ({condition.free_bytes} bytes free): delete topics or "
            "records, or make room"
        )
    reasons += condition.impairments
    membership = context.backend.membership
    if membership is not None:
        reasons += _standing_reasons(membership)
    reasons += [f"listener {each.name} is not open" for each in context.listeners if each.address is None]
    return reasons


def _standing_reasons(membership: Membership) -> list[str]:
    lease = membership.coordinating()
    if lease is None:
        return ["the database is away"] if membership.standing.is_cut_off else []
    if lease.is_cut_off:
        return [f"the lease cannot be renewed, and lasts {lease.seconds_left:.1f} s: the database is away"]
    return [] if lease.is_valid else ["the lease is over"]


HEALTH_ROUTES: Final = (
    Route(method="GET", path="/health/live", handler=_live, is_public=True),
    Route(method="GET", path="/health/ready", handler=_ready, is_public=True),
)
