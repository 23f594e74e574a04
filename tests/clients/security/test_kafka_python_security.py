"""kafka-python with TLS and SASL, unmodified."""

import warnings
from contextlib import closing
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
    from kafka.errors import (
        GroupAuthorizationFailedError,
        KafkaTimeoutError,
        TopicAuthorizationFailedError,
    )

from tests.clients.security.conftest import USERS, Secured

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SECONDS = 60


def config(
    secured: Secured, user: str = "alice", mechanism: str = "SCRAM-SHA-256", **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap_servers": secured.kafka,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secured.ca,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": USERS.get(user, "-"),
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_there_and_back(secured: Secured, topic: str, mechanism: str) -> None:
    own = config(secured, mechanism=mechanism)
    with closing(KafkaProducer(**own)) as producer:
        producer.send(topic, b"hello").get(SECONDS)
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, **own
    )
    with closing(consumer):
        assert next(consumer).value == b"hello"
        consumer.commit()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """It tries for as long as it may, and says in its log what is wrong."""
    own = config(secured, mechanism=mechanism, sasl_plain_password="guessed")
    with pytest.raises(KafkaTimeoutError):
        KafkaAdminClient(**own, bootstrap_timeout_ms=1000)
    assert "SaslAuthenticationFailedError" in caplog.text
    assert "a wrong user name or password" in caplog.text


def test_a_certificate_that_has_expired(expired: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaTimeoutError):
        KafkaAdminClient(**config(expired, bootstrap_timeout_ms=1000))
    assert "certificate has expired" in caplog.text


def test_writing_without_permission(secured: Secured) -> None:
    with (
        closing(KafkaProducer(**config(secured, "bob", enable_idempotence=False))) as producer,
        pytest.raises(TopicAuthorizationFailedError),
    ):
        producer.send("not-hers", b"hello").get(SECONDS)


def test_reading_without_permission(secured: Secured) -> None:
    own = config(secured, group_id=None, auto_offset_reset="earliest")
    with closing(KafkaConsumer(**own)) as consumer:
        consumer.assign([TopicPartition("seen", 0)])
        with pytest.raises(TopicAuthorizationFailedError):
            consumer.poll(SECONDS * 1000)


def test_joining_without_permission(secured: Secured, topic: str) -> None:
    with (
        closing(KafkaConsumer(topic, **config(secured, group_id="not-hers"))) as consumer,
        pytest.raises(GroupAuthorizationFailedError),
    ):
        consumer.poll(SECONDS * 1000)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_by_the_admin_client_with_its_default_of_iterations(secured: Secured, mechanism: str) -> None:
    with closing(KafkaAdminClient(**config(secured, "admin"))) as admin:
        upsertion = UserScramCredentialUpsertion("erin", mechanism, "erin's own")
        assert upsertion.iterations == 4096
        assert admin.alter_user_scram_credentials([upsertion]) == {"erin": None}
        described = admin.describe_user_scram_credentials(["erin"])["erin"]
        wanted = ScramMechanism[mechanism.replace("-", "_")]
        assert described["credential_infos"] == [{"mechanism": wanted, "iterations": 4096}]
        for used in (mechanism, "PLAIN"):
            own = config(secured, "erin", used, sasl_plain_password="erin's own")
            with closing(KafkaAdminClient(**own)) as erins:
                assert erins.list_topics() == []
        deletion = UserScramCredentialDeletion("erin", mechanism)
        assert admin.alter_user_scram_credentials([deletion]) == {"erin": None}
