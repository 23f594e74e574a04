"""CreateTopics: creates all topics of a request in one durable step."""

from collections import Counter

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_creation
from posthouse.protocols.kafka.replica_assignments import check_replicas
from posthouse.protocols.kafka.topic_configs import describe_topic, kept_overrides

_DEFAULT = -1
_REPLICAS = 1


async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    occurrences = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    accepted: list[NewTopic] = []
    for wanted in request.topics:
        try:
            require_creation(context, wanted.name)
            if occurrences[wanted.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is named more than once")
            accepted.append(_new_topic(context, wanted))
        except (PosthouseError, Refused) as error:
            results[wanted.name] = _failed(wanted.name, code_of(error), str(error))
    created = await context.broker.create_topics(accepted, validate_only=request.validate_only)
    for new, outcome in zip(accepted, created, strict=True):
        if isinstance(outcome, Topic):
            results[new.name] = _created(context, outcome, request.validate_only)
        else:
            results[new.name] = _failed(new.name, code_of(outcome), str(outcome))
    return CreateTopicsResponse(topics=[results[name] for name in occurrences])


def _new_topic(context: Context, wanted: CreatableTopic) -> NewTopic:
    partitions = wanted.num_partitions
    if wanted.assignments:
        partitions = _assigned_partitions(context, wanted)
    elif wanted.replication_factor < 1 and wanted.replication_factor != _DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {wanted.replication_factor} is less than 1",
        )
    configs: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"setting {config.name!r} has no value")
        configs[config.name] = config.value
    return NewTopic(
        name=wanted.name,
        partitions=None if partitions == _DEFAULT else partitions,
        overrides=kept_overrides(configs),
    )


def _assigned_partitions(context: Context, wanted: CreatableTopic) -> int:
    if wanted.num_partitions != _DEFAULT or wanted.replication_factor != _DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "with assignments given, partitions and replication factor must both be -1",
        )
    indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without a gap"
        )
    for assignment in wanted.assignments:
        check_replicas(assignment.broker_ids, context.node)
    return len(indexes)


def _created(context: Context, topic: Topic, validate_only: bool) -> CreatableTopicResult:
    result = CreatableTopicResult(name=topic.name, topic_id=ZERO_UUID if validate_only else topic.id)
    if not context.guard.may(Operation.DESCRIBE_CONFIGS, Kind.TOPIC, topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = topic.partitions
    result.replication_factor = _REPLICAS
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name, value=entry.value, read_only=entry.read_only, config_source=entry.source
        )
        for entry in describe_topic(topic, context.broker.topics.defaults)
    ]
    return result


def _failed(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _refuse(
    context: Context, request: CreateTopicsRequest, code: ErrorCode, message: str
) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failed(topic.name, code, message) for topic in request.topics])


HANDLER = Handler(key=19, handle=handle, refuse=_refuse)
