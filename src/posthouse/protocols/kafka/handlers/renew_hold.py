"""RenewHold, a Posthouse extension: keeps the objects of a manifest, or gives them up.

It needs no permission: whoever knows a hold has got it with a manifest.
"""

from uuid import UUID

from posthouse.protocols.kafka.codec.own.renew_hold import RenewHoldRequest, RenewHoldResponse
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler


async def handle(context: Context, request: RenewHoldRequest) -> RenewHoldResponse:
    objects = context.broker.segment_objects
    if objects is None:
        return RenewHoldResponse(is_held=False)
    hold = UUID(bytes=request.hold)
    if request.is_released:
        await objects.release(hold)
        return RenewHoldResponse(is_held=False)
    return RenewHoldResponse(is_held=await objects.renew(hold))


def _refuse(context: Context, request: RenewHoldRequest, code: ErrorCode, message: str) -> RenewHoldResponse:
    return RenewHoldResponse(error_code=code, error_message=message)


HANDLER = Handler(key=10_002, handle=handle, refuse=_refuse)
