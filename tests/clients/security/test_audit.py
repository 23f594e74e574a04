"""The audit log of a broker that many kinds of clients came to, and passwords, which are nowhere."""

import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import Producer

from posthouse.client import Client, Security
from posthouse.client.errors import ClientError, LoginRefused
from posthouse.client.permissions import AclOperation, Permission, ResourceKind
from posthouse.client.security import SaslMechanism
from tests.certificates import Authority
from tests.cli.programs import Serving, environment

PASSWORDS = {"admin": "Adm1n-s3cret-x", "alice": "Al1ce-s3cret-y", "guess": "Gu3ss-s3cret-z"}
SECONDS = 60


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> dict[str, Any]:
    """What a broker process has left behind: its directory, what it printed, and its audit log."""
    place = tmp_path_factory.mktemp("visited")
    data, file = place / "data", place / "password"
    file.write_text(PASSWORDS["admin"])
    file.chmod(0o600)
    identity = authority.issue()
    serving = Serving(
        data,
        *("--kafka-tls", "127.0.0.1:0", "--amqp-tls", "127.0.0.1:0"),
        *("--tls-certificate", str(identity.certificate), "--tls-key", str(identity.key)),
        *("--authentication", "required", "--admin-password-file", str(file)),
        *("--log-level", "debug"),
    )
    with serving:
        listeners = serving.ready["listeners"]
        _visit(listeners, authority, data / "audit.log")
        status, out, err = serving.end()
    assert status == 0, err
    lines = (data / "audit.log").read_text().splitlines()
    return {
        "data": data,
        "printed": serving.ready_line + out + err,
        "audit": [json.loads(each) for each in lines],
    }


def _visit(listeners: dict[str, str], authority: Authority, audit_log: Path) -> None:
    def security(
        user: str, password: str, mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    ) -> Security:
        return Security(ca=authority.file, user=user, password=password, mechanism=mechanism)

    kafka = listeners["kafka_tls"]
    with Client(kafka, security=security("admin", PASSWORDS["admin"])) as admin:
        admin.create_user("alice", PASSWORDS["alice"])
        admin.add_permissions(
            [
                Permission(
                    user="alice",
                    operation=AclOperation.ALL,
                    kind=ResourceKind.TOPIC,
                    name="alice",
                    is_prefix=True,
                )
            ]
        )
        admin.create_topic("private", partitions=1)
        assert '"create", "resource": "topic:private"' in audit_log.read_text()
    for mechanism in SaslMechanism:
        with Client(kafka, security=security("alice", PASSWORDS["alice"], mechanism)) as client:
            client.topics()
            with pytest.raises(ClientError):
                client.delete_topic("private")
        with pytest.raises(LoginRefused):
            Client(kafka, security=security("alice", PASSWORDS["guess"], mechanism)).topics()
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORDS["alice"],
            "log_level": 0,
        }
    )
    producer.produce("private", b"hello")
    assert producer.flush(SECONDS) == 0
    del producer
    for password in (PASSWORDS["alice"], PASSWORDS["guess"]):
        _visit_by_amqp(listeners["amqp_tls"], authority, password, audit_log)


def _visit_by_amqp(address: str, authority: Authority, password: str, audit_log: Path) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        int(address.rpartition(":")[2]),
        credentials=pika.PlainCredentials("alice", password),
        ssl_options=pika.SSLOptions(ssl.create_default_context(cafile=authority.file), "127.0.0.1"),
    )
    try:
        connection = pika.BlockingConnection(parameters)
    except pika.exceptions.ProbableAuthenticationError:
        assert password == PASSWORDS["guess"]
        return
    channel = connection.channel()
    channel.queue_declare("alice-queue", durable=True)
    assert '"create", "resource": "topic:alice-queue"' in audit_log.read_text()
    channel.queue_purge("alice-queue")
    assert '"purge", "resource": "topic:alice-queue"' in audit_log.read_text()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_delete("private")
    connection.close()


def entries(visited: dict[str, Any], **wanted: object) -> list[dict[str, Any]]:
    return [line for line in visited["audit"] if wanted.items() <= line.items()]


def test_every_line_says_who_what_from_where_and_whether(visited: dict[str, Any]) -> None:
    for line in visited["audit"]:
        assert line["principal"].startswith("User:")
        assert line["peer"].startswith("127.0.0.1:")
        assert line["protocol"] in ("kafka", "amqp")
        assert line["action"] and line["resource"]
        assert isinstance(line["allowed"], bool)
        assert line["time"].endswith("Z")


@pytest.mark.parametrize("protocol", ["kafka", "amqp"])
def test_logins(visited: dict[str, Any], protocol: str) -> None:
    came = {"principal": "User:alice", "protocol": protocol, "action": "login"}
    mechanisms = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} if protocol == "kafka" else {"PLAIN"}
    assert {line["resource"] for line in entries(visited, **came, allowed=True)} == mechanisms
    refused = entries(visited, **came, allowed=False)
    assert {line["resource"] for line in refused} == mechanisms
    assert {line["detail"] for line in refused} == {"a wrong user name or password"}


@pytest.mark.parametrize(
    ("user", "protocol", "action", "resource", "allowed"),
    [
        ("admin", "kafka", "set-credential", "user:alice", True),
        ("admin", "kafka", "create-acl", "topic beginning with:alice", True),
        ("admin", "kafka", "create", "topic:private", True),
        ("alice", "kafka", "delete", "topic:private", False),
        ("alice", "kafka", "describe", "topic:private", False),
        ("alice", "amqp", "create", "topic:alice-queue", True),
        ("alice", "amqp", "delete", "topic:private", False),
    ],
)
def test_changes_and_refusals(
    visited: dict[str, Any], user: str, protocol: str, action: str, resource: str, allowed: bool
) -> None:
    assert entries(
        visited,
        principal=f"User:{user}",
        protocol=protocol,
        action=action,
        resource=resource,
        allowed=allowed,
    )


@pytest.mark.parametrize("name", PASSWORDS)
def test_no_password_is_anywhere(visited: dict[str, Any], name: str) -> None:
    """Neither in what was printed (at the level debug) nor in any file of the broker."""
    secret = PASSWORDS[name]
    assert secret not in visited["printed"]
    files = [file for file in visited["data"].rglob("*") if file.is_file()]
    assert len(files) > 3
    for file in files:
        assert secret.encode() not in file.read_bytes(), file


def test_only_its_owner_may_read_the_audit_log(visited: dict[str, Any]) -> None:
    assert (visited["data"] / "audit.log").stat().st_mode & 0o077 == 0


def test_a_broker_that_is_open_by_mistake_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "posthouse.cli.main", "serve", "--data", tmp_path, "--kafka", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "refusing to listen on 0.0.0.0:0: anyone who reaches it could read" in done.stderr
