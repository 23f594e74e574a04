"""ElectLeaders: a partition is led by its first replica, so no election is needed."""

from enum import IntEnum

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import NotFound
from posthouse.protocols.kafka.codec.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


_ELECTIONS = frozenset(map(int, Election))


def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    require_on_cluster(context, Operation.ALTER)
    if request.election_type not in _ELECTIONS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no election of type {request.election_type}")
    # A request for all partitions is answered with those that needed an election: none.
    wanted = request.topic_partitions or ()
    return ElectLeadersResponse(replica_election_results=[_results(context, topic) for topic in wanted])


def _results(context: Context, wanted: TopicPartitions) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=wanted.topic,
        partition_result=[_result(context, wanted.topic, index) for index in wanted.partitions],
    )


def _result(context: Context, name: str, index: int) -> PartitionResult:
    try:
        context.broker.partition(context.broker.topic(name), index)
    except NotFound as error:
        return PartitionResult(partition_id=index, error_code=code_of(error), error_message=str(error))
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message="the partition is led by its preferred replica",
    )


def _refuse(
    context: Context, request: ElectLeadersRequest, code: ErrorCode, message: str
) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=code)


HANDLER = Handler(key=43, handle=handle, refuse=_refuse)
