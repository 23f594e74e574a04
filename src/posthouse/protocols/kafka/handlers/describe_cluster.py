"""DescribeCluster: the nodes."""

from enum import IntEnum

from posthouse.protocols.kafka.codec.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.nodes import NO_NODE_ID
from posthouse.protocols.kafka.operations import NOT_ASKED, cluster_operations


class EndpointType(IntEnum):
    BROKERS = 1
    CONTROLLERS = 2


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == EndpointType.CONTROLLERS:
        raise Refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller")
    if request.endpoint_type != EndpointType.BROKERS:
        raise Refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {request.endpoint_type}"
        )
    controller = context.node.coordinator()
    return DescribeClusterResponse(
        cluster_id=context.broker.cluster_id,
        controller_id=NO_NODE_ID if controller is None else controller.id,
        brokers=[
            DescribeClusterBroker(broker_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in context.node.all()
        ],
        cluster_authorized_operations=(
            cluster_operations(context.guard) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _refuse(
    context: Context, request: DescribeClusterRequest, code: ErrorCode, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)


HANDLER = Handler(key=60, handle=handle, refuse=_refuse)
