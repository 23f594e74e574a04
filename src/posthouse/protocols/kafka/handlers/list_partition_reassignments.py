"""ListPartitionReassignments: partitions are not reassigned, so the list is empty."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.codec.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster


def handle(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    require_on_cluster(context, Operation.DESCRIBE)
    return ListPartitionReassignmentsResponse()


def _refuse(
    context: Context, request: ListPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)


HANDLER = Handler(key=46, handle=handle, refuse=_refuse)
