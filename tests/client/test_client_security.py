"""TLS and logins of the client, against a real broker with certificates of its own."""

import pickle
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from posthouse.client import Client, Security
from posthouse.client.errors import (
    BadArgument,
    BrokerSilent,
    BrokerUnreachable,
    IncompatibleBroker,
    LoginRefused,
    NotAllowed,
    NotTrusted,
)
from posthouse.client.security import SaslMechanism, password_in
from posthouse.testing import ThreadBroker, running_broker
from tests.certificates import Authority, Identity
from tests.tls_brokers import tls_broker

USERS = {"admin": "admin's own", "alice": "wonder, land="}


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[ThreadBroker]:
    with tls_broker(authority, USERS) as running:
        yield running


def security(user: str, authority: Authority | None = None, **more: object) -> Security:
    ca = None if authority is None else authority.file
    return Security(**{"user": user, "password": USERS[user], "ca": ca, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", SaslMechanism)
@pytest.mark.parametrize("encrypted", [True, False])
def test_logging_in(
    broker: ThreadBroker, authority: Authority, mechanism: SaslMechanism, encrypted: bool
) -> None:
    where = broker.kafka_tls if encrypted else broker.kafka
    who = security("admin", authority if encrypted else None, mechanism=mechanism)
    with Client(where, security=who) as client:
        topic = f"{mechanism}-{encrypted}"
        client.create_topic(topic, partitions=2)
        with client.producer(topic) as producer:
            for number in range(2000):
                producer.send(b"%d" % number * 100)
        assert sum(1 for _ in client.messages(topic)) == 2000
        reading = client.range_of(client.topic(topic), 0, 0, 10)
        assert next(iter(reading))


@pytest.mark.parametrize("mechanism", SaslMechanism)
def test_a_wrong_password(broker: ThreadBroker, authority: Authority, mechanism: SaslMechanism) -> None:
    for user in ("alice", "nobody"):
        who = Security(ca=authority.file, user=user, password="guessed", mechanism=mechanism)
        with pytest.raises(LoginRefused) as caught, Client(broker.kafka_tls, security=who) as client:
            client.topics()
        assert str(caught.value) == (
            f"the broker at {broker.kafka_tls} refused the login: a wrong user name or password"
        )


def test_nobody_logs_in(broker: ThreadBroker) -> None:
    with pytest.raises(BrokerUnreachable, match="give --user if it requires a login"):
        Client(broker.kafka).topics()


def test_a_login_that_nobody_wants(posthouse_session: ThreadBroker) -> None:
    with pytest.raises(LoginRefused, match="does not require a login"):
        Client(posthouse_session.kafka, security=security("alice")).topics()


def test_without_permission(broker: ThreadBroker, authority: Authority) -> None:
    with Client(broker.kafka_tls, security=security("admin", authority)) as admin:
        admin.create_topic("secret")
    with Client(broker.kafka_tls, security=security("alice", authority)) as client:
        assert client.topics() == []
        with pytest.raises(NotAllowed) as caught:
            client.topic("secret")
        assert str(caught.value) == (
            "you may not do this to topic 'secret'; ask an administrator for "
            "'posthouse acl allow YOU read,write topic secret', or what of it you need"
        )
        with pytest.raises(NotAllowed, match="may not do this to"):
            client.create_topic("another")


def test_an_authority_that_we_do_not_know(broker: ThreadBroker, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with pytest.raises(NotTrusted, match=r"no trusted authority has signed .* --ca FILE"):
        Client(broker.kafka_tls, security=security("alice", other)).topics()
    with pytest.raises(NotTrusted, match="no trusted authority has signed"):
        Client(broker.kafka_tls, security=security("alice", tls=True)).topics()


@pytest.mark.parametrize(
    ("hosts", "expired", "sentence"),
    [
        (("127.0.0.1",), True, "has expired; ask its operator"),
        (("elsewhere.example",), False, "is for another name than '127.0.0.1'"),
    ],
)
def test_certificates_that_are_not_good(
    authority: Authority, hosts: tuple[str, ...], expired: bool, sentence: str
) -> None:
    identity = authority.issue(*hosts, expired=expired)
    with (
        running_broker(users=USERS, tls_certificate=identity.certificate, tls_key=identity.key) as bad,
        pytest.raises(NotTrusted, match=sentence),
    ):
        Client(bad.kafka_tls, security=security("alice", authority)).topics()


def test_a_certificate_of_ours(authority: Authority, tmp_path: Path) -> None:
    identity, alice = authority.issue(), authority.issue("alice.example", name="admin")
    stranger = Authority(tmp_path).issue(name="admin")
    with running_broker(
        users=USERS,
        tls_certificate=identity.certificate,
        tls_key=identity.key,
        tls_client_ca=authority.file,
        tls_client_certificates="required",
    ) as broker:
        shown = Security(ca=authority.file, certificate=alice.certificate, key=alice.key)
        with Client(broker.kafka_tls, security=shown) as client:
            client.create_topic("mine")
        refused = (NotTrusted, BrokerUnreachable)
        with pytest.raises(refused, match="--certificate"):
            Client(broker.kafka_tls, security=Security(ca=authority.file)).topics()
        shown = Security(ca=authority.file, certificate=stranger.certificate, key=stranger.key)
        with pytest.raises(refused, match=r"certificate that it trusts|authority of your certificate"):
            Client(broker.kafka_tls, security=shown).topics()


def test_tls_where_there_is_none(broker: ThreadBroker, authority: Authority) -> None:
    with pytest.raises((IncompatibleBroker, BrokerUnreachable), match="TLS"):
        Client(broker.kafka, security=security("alice", authority)).topics()


def test_no_tls_where_there_is_only_that(broker: ThreadBroker) -> None:
    with pytest.raises((IncompatibleBroker, BrokerUnreachable)) as caught:
        Client(broker.kafka_tls).topics()
    assert "requires TLS" in str(caught.value) or "was lost" in str(caught.value)


def test_somebody_who_does_not_even_begin_with_tls(authority: Authority) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        where = "{}:{}".format(*server.getsockname())
        with pytest.raises(BrokerSilent, match="does not speak TLS, or not in time"):
            Client(where, timeout=0.05, security=security("alice", authority)).topics()


@pytest.mark.parametrize("allowed", [True, False])
def test_plain_passwords_stay_on_this_machine(
    broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    monkeypatch.setattr("posthouse.client.connection.BrokerConnection.peer", "192.0.2.7")
    who = security("admin", mechanism=SaslMechanism.PLAIN, allow_cleartext_password=allowed)
    with Client(broker.kafka, security=who) as client:
        if allowed:
            client.topics()
        else:
            with pytest.raises(BadArgument, match="PLAIN would send your password"):
                client.topics()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_not_spoken(authority: Authority) -> None:
    identity = authority.issue()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    failures: list[OSError] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connected, _ = server.accept()
            with closing(connected):
                try:
                    context.wrap_socket(connected, server_side=True)
                except OSError as error:
                    failures.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        where = "{}:{}".format(*server.getsockname())
        with pytest.raises((NotTrusted, BrokerUnreachable)):
            Client(where, timeout=5, security=security("alice", authority)).topics()
        thread.join(5)
    assert len(failures) == 1


def test_what_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="the password of 'alice' is missing"):
        Security(user="alice")
    with pytest.raises(BadArgument, match="a password but no user"):
        Security(password="secret")
    with pytest.raises(BadArgument, match="needs its certificate"):
        Security(key=tmp_path)
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(BadArgument, match="holds no certificate of an authority"):
        Client("127.0.0.1:1", security=Security(ca=empty))
    with pytest.raises(BadArgument, match=r"missing\.pem cannot be read: No such file"):
        Client("127.0.0.1:1", security=Security(ca=tmp_path / "missing.pem"))
    with pytest.raises(BadArgument, match=r"missing\.pem cannot be read: No such file"):
        Client("127.0.0.1:1", security=Security(certificate=tmp_path / "missing.pem"))


def test_a_certificate_that_is_none(broker: ThreadBroker, authority: Authority, tmp_path: Path) -> None:
    for name in ("certificate.pem", "key.pem"):
        (tmp_path / name).write_text("nothing of the kind")
    identity = Identity(tmp_path / "certificate.pem", tmp_path / "key.pem")
    who = Security(ca=authority.file, certificate=identity.certificate, key=identity.key)
    with pytest.raises(BadArgument, match="are not a certificate and its key"):
        Client(broker.kafka_tls, security=who).topics()


def test_no_password_in_what_is_printed() -> None:
    who = Security(user="alice", password="very secret")
    assert "secret" not in repr(who) and "secret" not in str(who)
    assert pickle.loads(pickle.dumps(who)) == who


def test_the_environment_and_back(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\nand more\n")
    file.chmod(0o600)
    given = {
        "POSTHOUSE_USER": "alice",
        "POSTHOUSE_PASSWORD_FILE": str(file),
        "POSTHOUSE_CA": "/ca.pem",
        "POSTHOUSE_CERTIFICATE": "/mine.pem",
        "POSTHOUSE_KEY": "/mine-key.pem",
        "POSTHOUSE_MECHANISM": "scram-sha-512",
        "POSTHOUSE_TLS": "true",
    }
    who = Security.from_environment(given)
    assert who == Security(
        tls=True,
        user="alice",
        password="from a file",
        ca=Path("/ca.pem"),
        certificate=Path("/mine.pem"),
        key=Path("/mine-key.pem"),
        mechanism=SaslMechanism.SCRAM_SHA_512,
    )
    assert Security.from_environment(who.environment()) == who
    assert Security.from_environment({}) == Security()
    assert Security().environment() == {}
    with pytest.raises(BadArgument, match="'GSSAPI' is not a SASL mechanism"):
        Security.from_environment({"POSTHOUSE_MECHANISM": "GSSAPI"})


def test_files_with_passwords(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o640)
    with pytest.raises(BadArgument, match=f"chmod 600 {file}"):
        password_in(file)
    file.chmod(0o600)
    assert password_in(file) == "secret"
    file.write_text("\n")
    with pytest.raises(BadArgument, match="there is no password"):
        password_in(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadArgument, match="is not UTF-8"):
        password_in(file)
