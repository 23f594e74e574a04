"""confluent-kafka (librdkafka) with TLS and SASL, unmodified."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.clients.security.conftest import USERS, Secured

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SECONDS = 60


def config(
    secured: Secured, user: str = "alice", mechanism: str = "SCRAM-SHA-256", **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.kafka,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": secured.ca,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS.get(user, "-"),
        "log_level": 0,
        **more,
    }


class Complaints:
    """What librdkafka reports beside the calls."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        self.errors.append(error)

    def first(self, client: Any, code: int) -> KafkaError:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            client.poll(0.05)
            for error in self.errors:
                if error.code() == code:
                    return error
        raise AssertionError([str(error) for error in self.errors])


def produce(producer: Producer, topic: str, value: bytes) -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(SECONDS) == 0
    return outcomes[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_there_and_back(secured: Secured, topic: str, mechanism: str) -> None:
    producer = Producer(config(secured, mechanism=mechanism))
    assert produce(producer, topic, b"hello") is None
    consumer = Consumer(
        config(secured, mechanism=mechanism, **{"group.id": topic, "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS)
    assert message is not None and message.value() == b"hello"
    consumer.commit(asynchronous=False)
    consumer.close()


def test_without_repetitions(secured: Secured, topic: str) -> None:
    wanted: dict[str, Any] = {"enable.idempotence": True}
    producer = Producer(config(secured, **wanted))
    for number in range(3):
        assert produce(producer, topic, b"%d" % number) is None


def test_in_a_transaction(secured: Secured, topic: str) -> None:
    producer = Producer(config(secured, **{"transactional.id": topic}))
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    assert produce(producer, topic, b"hello") is None
    producer.commit_transaction(SECONDS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    complaints = Complaints()
    wrong: dict[str, Any] = {"sasl.password": "guessed", "error_cb": complaints}
    producer = Producer(config(secured, mechanism=mechanism, **wrong))
    error = complaints.first(producer, KafkaError._AUTHENTICATION)
    assert "a wrong user name or password" in error.str()


def test_a_mechanism_that_is_not_there(secured: Secured) -> None:
    complaints = Complaints()
    own = config(secured, mechanism="PLAIN", error_cb=complaints)
    producer = Producer(own | {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True})
    assert complaints.first(producer, KafkaError._AUTHENTICATION)


def test_a_certificate_that_has_expired(expired: Secured) -> None:
    complaints = Complaints()
    producer = Producer(config(expired, error_cb=complaints))
    assert "certificate verify failed" in complaints.first(producer, KafkaError._SSL).str()


def test_an_authority_that_is_not_known(secured: Secured) -> None:
    complaints = Complaints()
    own = config(secured, error_cb=complaints)
    del own["ssl.ca.location"]
    assert "ssl.ca.location" in complaints.first(Producer(own), KafkaError._SSL).str()


def test_no_login_at_all(secured: Secured) -> None:
    complaints = Complaints()
    own: dict[str, Any] = {
        "bootstrap.servers": secured.kafka,
        "security.protocol": "SSL",
        "ssl.ca.location": secured.ca,
        "error_cb": complaints,
        "log_level": 0,
    }
    admin = AdminClient(own)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_writing_without_permission(secured: Secured) -> None:
    error = produce(Producer(config(secured, "bob")), "not-hers", b"hello")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_reading_without_permission(secured: Secured) -> None:
    consumer = Consumer(config(secured, **{"group.id": "alice"}))
    consumer.assign([TopicPartition("seen", 0, 0)])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert (error := message.error()) is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_joining_without_permission(secured: Secured, topic: str) -> None:
    consumer = Consumer(config(secured, **{"group.id": "not-hers"}))
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert (error := message.error()) is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_transactions_without_permission(secured: Secured) -> None:
    producer = Producer(config(secured, "bob", **{"transactional.id": "not-hers"}))
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(SECONDS)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_creating_without_permission(secured: Secured) -> None:
    admin = AdminClient(config(secured))
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic("not-hers-either", 1)])["not-hers-either"].result(SECONDS)
    assert caught.value.args[0].code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )


def test_what_may_not_be_seen_is_not_listed(secured: Secured, topic: str) -> None:
    assert topic in AdminClient(config(secured)).list_topics(timeout=SECONDS).topics
    assert "not-hers" not in AdminClient(config(secured)).list_topics(timeout=SECONDS).topics
    assert AdminClient(config(secured, "bob")).list_topics(timeout=SECONDS).topics == {}


def test_users_by_the_admin_client(secured: Secured) -> None:
    admin = AdminClient(config(secured, "admin"))
    upsertion = UserScramCredentialUpsertion(
        "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"carol's own"
    )
    admin.alter_user_scram_credentials([upsertion])["carol"].result(SECONDS)
    asked = admin.describe_user_scram_credentials(["carol"])
    assert isinstance(asked, dict)
    described = asked["carol"].result(SECONDS)
    [info] = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_512, 4096)
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        own = config(secured, "carol", mechanism, **{"sasl.password": "carol's own"})
        assert AdminClient(own).list_topics(timeout=SECONDS).topics == {}
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])["carol"].result(SECONDS)
    complaints = Complaints()
    own = config(secured, "carol", "PLAIN", **{"sasl.password": "carol's own", "error_cb": complaints})
    assert complaints.first(Producer(own), KafkaError._AUTHENTICATION)


def test_permissions_by_the_admin_client(secured: Secured) -> None:
    admin = AdminClient(config(secured, "admin"))
    binding = AclBinding(
        ResourceType.TOPIC,
        "shared",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([binding])[binding].result(SECONDS)
    admin.create_topics([NewTopic("shared-1", 1)])["shared-1"].result(SECONDS)
    producer = Producer(config(secured, "bob"))
    assert produce(producer, "shared-1", b"hello") is None
    anything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # which is how confluent-kafka says "any"
        ResourcePatternType.ANY,
        "User:bob",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(anything).result(SECONDS) == [binding]
    assert admin.delete_acls([anything])[anything].result(SECONDS) == [binding]
    # The connection is the same one: what it may do changes at once.
    error = produce(producer, "shared-1", b"hello")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_users_without_permission_for_it(secured: Secured) -> None:
    admin = AdminClient(config(secured))
    upsertion = UserScramCredentialUpsertion(
        "dave", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"dave's own"
    )
    with pytest.raises(KafkaException) as caught:
        admin.alter_user_scram_credentials([upsertion])["dave"].result(SECONDS)
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
