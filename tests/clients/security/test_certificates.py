"""Certificates of brokers that change, and certificates of clients, with confluent-kafka."""

import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography import x509

from posthouse.client import Client, Security
from posthouse.client.permissions import AclOperation, Permission, ResourceKind
from posthouse.testing import ThreadBroker, running_broker
from tests.certificates import Authority, Identity
from tests.cli.programs import Serving
from tests.clients.security.conftest import USERS, Secured
from tests.stored import stored_in

SECONDS = 60


@pytest.fixture
def identity(authority: Authority) -> Identity:
    return authority.issue()


@pytest.fixture
def broker(authority: Authority, identity: Identity) -> Iterator[Secured]:
    with running_broker(
        **stored_in(), users=USERS, tls_certificate=identity.certificate, tls_key=identity.key
    ) as running:
        yield Secured(running, str(authority.file))


def serial_in(file: Path) -> int:
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number


def serial_shown(address: str, ca: str) -> int:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    with (
        closing(socket.create_connection((host, int(port)), SECONDS)) as connected,
        context.wrap_socket(connected, server_hostname=host) as encrypted,
    ):
        shown = encrypted.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def reload(broker: ThreadBroker) -> None:
    """What a signal, or the passing of some seconds, does to a broker process."""
    loop = broker._loop
    assert loop is not None
    loop.call_soon_threadsafe(broker.broker.app.reload_certificates)


def wait_for_serial(secured: Secured, serial: int) -> None:
    deadline = time.monotonic() + SECONDS
    while serial_shown(secured.kafka, secured.ca) != serial:
        assert time.monotonic() < deadline


def test_a_new_certificate_without_a_restart(
    broker: Secured, authority: Authority, identity: Identity
) -> None:
    before = serial_in(identity.certificate)
    assert serial_shown(broker.kafka, broker.ca) == before
    with broker.client("admin") as old:
        old.create_topic("mine", partitions=1)
        authority.reissue(identity)
        reload(broker.broker)
        wait_for_serial(broker, serial_in(identity.certificate))
        assert serial_shown(broker.broker.amqp_tls, broker.ca) == serial_in(identity.certificate) != before
        # Connections of before go on with what they have.
        assert [topic.name for topic in old.topics()] == ["mine"]
        with old.producer("mine") as producer:
            producer.send(b"x" * 100_000)
    with broker.client("admin") as new:
        assert sum(1 for _ in new.messages("mine")) == 1


def test_a_broker_process_is_told_by_a_signal(
    authority: Authority, identity: Identity, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(USERS["admin"])
    file.chmod(0o600)
    with Serving(
        None,
        *("--kafka-tls", "127.0.0.1:0"),
        *("--tls-certificate", str(identity.certificate), "--tls-key", str(identity.key)),
        *("--authentication", "required", "--admin-password-file", str(file)),
    ) as serving:
        where = serving.ready["listeners"]["kafka_tls"]
        assert serial_shown(where, str(authority.file)) == serial_in(identity.certificate)
        authority.reissue(identity)
        serving.process.send_signal(signal.SIGHUP)
        # It would look by itself after five seconds; this is the way for those who do not want to wait.
        deadline = time.monotonic() + SECONDS
        while serial_shown(where, str(authority.file)) != serial_in(identity.certificate):
            assert time.monotonic() < deadline
        assert serving.process.poll() is None


@pytest.mark.parametrize("damage", ["no certificate", "the key of another", "gone"])
def test_files_that_cannot_be_used_change_nothing(
    broker: Secured, authority: Authority, identity: Identity, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = serial_in(identity.certificate)
    good = identity.certificate.read_bytes(), identity.key.read_bytes()
    if damage == "no certificate":
        identity.certificate.write_text("nothing of the kind")
    elif damage == "the key of another":
        identity.key.write_bytes(authority.issue().key.read_bytes())
    else:
        identity.certificate.unlink()
    reload(broker.broker)
    deadline = time.monotonic() + SECONDS
    while "not reloaded, the old one stays in use" not in caplog.text:
        assert serial_shown(broker.kafka, broker.ca) == before
        assert time.monotonic() < deadline
    assert serial_shown(broker.kafka, broker.ca) == before
    # Once the files are good again they count, without anybody's help but the same signal.
    authority.reissue(identity)
    assert good[0] != identity.certificate.read_bytes()
    reload(broker.broker)
    wait_for_serial(broker, serial_in(identity.certificate))


@pytest.fixture(params=["optional", "required"])
def asking(request: pytest.FixtureRequest, authority: Authority) -> Iterator[tuple[Secured, str]]:
    """A broker that asks clients for certificates, and how much it insists."""
    identity = authority.issue()
    with running_broker(
        **stored_in(),
        users=USERS,
        tls_certificate=identity.certificate,
        tls_key=identity.key,
        tls_client_ca=authority.file,
        tls_client_certificates=request.param,
    ) as running:
        yield Secured(running, str(authority.file)), request.param


def by_certificate(secured: Secured, shown: Identity, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.kafka,
        "security.protocol": "SSL",
        "ssl.ca.location": secured.ca,
        "ssl.certificate.location": str(shown.certificate),
        "ssl.key.location": str(shown.key),
        "log_level": 0,
        **more,
    }


def test_a_certificate_says_who_it_is(asking: tuple[Secured, str], authority: Authority) -> None:
    secured, _ = asking
    shown = authority.issue(name="admin")
    admin = Security(ca=authority.file, certificate=shown.certificate, key=shown.key)
    with Client(secured.kafka, security=admin) as client:
        client.create_topic("theirs", partitions=1)
        client.create_topic("hers", partitions=1)
        client.add_permissions(
            [Permission(user="dora", operation=AclOperation.WRITE, kind=ResourceKind.TOPIC, name="hers")]
        )
    outcomes: list[KafkaError | None] = []
    producer = Producer(by_certificate(secured, authority.issue(name="dora")))
    for topic in ("hers", "theirs"):
        producer.produce(topic, b"hello", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(SECONDS) == 0
    assert outcomes[0] is None
    assert outcomes[1] is not None and outcomes[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_without_a_certificate(asking: tuple[Secured, str]) -> None:
    """Where it is optional, a password does as well."""
    secured, how = asking
    admin = AdminClient(
        {
            "bootstrap.servers": secured.kafka,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": secured.ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
            "log_level": 0,
        }
    )
    if how == "optional":
        assert admin.list_topics(timeout=SECONDS).topics == {}
    else:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2)


@pytest.mark.parametrize("fault", ["of another authority", "expired"])
def test_a_certificate_that_is_not_good(
    asking: tuple[Secured, str], authority: Authority, tmp_path: Path, fault: str
) -> None:
    secured, _ = asking
    other = authority if fault == "expired" else Authority(tmp_path)
    shown = other.issue(name="admin", expired=fault == "expired")
    admin = AdminClient(by_certificate(secured, shown))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
