"""Errors of librdkafka as those of our own client: the relay asks these what is to be done."""

from typing import Final

from confluent_kafka import KafkaError

from posthouse.client.errors import (
    BrokerUnreachable,
    ClientError,
    LoginRefused,
    MessageTooLarge,
    NotAllowed,
    ProducerFenced,
    RequestRefused,
    TopicNotFound,
)

_NOT_REACHED: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
    }
)
_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)
_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_UNKNOWN_TOPIC: Final = frozenset(
    {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_REFUSED: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN_TOPIC_CODE: Final = 3


def client_error(error: KafkaError, what: str) -> ClientError:
    """`what` was asked for: the name of a topic, or of a shard of an outbox."""
    code = error.code()
    sentence = f"Kafka refuses {what!r}: {error.str()}"
    if code in _NOT_REACHED:
        return BrokerUnreachable(f"Kafka did not take {what!r} in time: {error.str()}")
    if code in _LOGIN:
        return LoginRefused(f"Kafka does not let the relay in: {error.str()}")
    if code in _FENCED:
        return ProducerFenced(f"another relay has taken {what!r}", code)
    if code in _UNKNOWN_TOPIC:
        return TopicNotFound(sentence, _UNKNOWN_TOPIC_CODE)
    if code in _TOO_LARGE:
        return MessageTooLarge(sentence, code)
    if code in _REFUSED:
        return NotAllowed(sentence, code)
    return RequestRefused(sentence, code)
