"""The brokers that librdkafka's tests run against, and what its clients need to reach each of them.

default       a broker as it comes
noautocreate  one that creates no topics by itself
logins        one where every client logs in, as a user who may do everything until an ACL denies it
tls           one that talks TLS and requires certificates of clients
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tools.conformance.broker import RunningBroker, broker
from tools.conformance.client_certificates import issue
from tools.conformance.kafka_path import ADMIN_CLIENT
from tools.conformance.workspace import Workspace

DEFAULT = "default"
NO_AUTO_CREATION = "noautocreate"
COMPACTION = "compaction"
LOGINS = "logins"
ADMIN = "admin"
TLS = "tls"

ADMIN_LOGIN = ("admin", "of the conformance run")
MECHANISM = "SCRAM-SHA-256"

_TESTER = ("tester", "who may do everything")
_ITERATIONS = 8192
_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How clients reach a broker."""

    broker: RunningBroker | None
    """None for one that was running before."""
    address: str
    client: dict[str, str] = field(default_factory=dict)
    """Settings of the clients, beyond the address."""
    environment: dict[str, str] = field(default_factory=dict)
    """Of the test runner."""


@contextmanager
def running(workspace: Workspace, suite: str, name: str) -> Iterator[Scenario]:
    with _STARTERS[name](workspace, f"{suite}-{name}") as scenario:
        yield scenario


@contextmanager
def _default(workspace: Workspace, name: str) -> Iterator[Scenario]:
    with broker(workspace, name) as served:
        yield Scenario(broker=served, address=served.address)


@contextmanager
def _compaction(workspace: Workspace, name: str) -> Iterator[Scenario]:
    with broker(workspace, name, retention_check_seconds="5") as served:
        yield Scenario(broker=served, address=served.address)


@contextmanager
def _no_auto_creation(workspace: Workspace, name: str) -> Iterator[Scenario]:
    with broker(workspace, name, auto_create_topics="false") as served:
        yield Scenario(broker=served, address=served.address)


@contextmanager
def _logins(workspace: Workspace, name: str) -> Iterator[Scenario]:
    with broker_with_logins(workspace, name) as served:
        admin = {"bootstrap.servers": served.address, **_login(*ADMIN_LOGIN)}
        _create_tester(admin)
        yield Scenario(
            broker=served,
            address=served.address,
            client=_login(*_TESTER),
            environment={ADMIN_CLIENT: json.dumps(admin)},
        )


@contextmanager
def _admin(workspace: Workspace, name: str) -> Iterator[Scenario]:
    with broker_with_logins(workspace, name) as served:
        yield Scenario(broker=served, address=served.address, client=_login(*ADMIN_LOGIN))


@contextmanager
def _tls(workspace: Workspace, name: str) -> Iterator[Scenario]:
    certificates = issue(workspace.root / "certificates")
    settings = {
        "kafka_tls": "127.0.0.1:0",
        "tls_certificate": str(certificates.broker),
        "tls_key": str(certificates.broker_key),
        "tls_client_ca": str(certificates.authority),
        "tls_client_certificates": "required",
    }
    with broker(workspace, name, **settings) as served:
        yield Scenario(
            broker=served,
            address=served.listeners["kafka_tls"],
            client=certificates.client,
            environment=certificates.environment,
        )


@contextmanager
def broker_with_logins(workspace: Workspace, name: str) -> Iterator[RunningBroker]:
    """With one user, its superuser: see `ADMIN_LOGIN`."""
    password = workspace.root / "admin-password"
    password.touch(mode=0o600)
    password.write_text(ADMIN_LOGIN[1])
    settings = {"authentication": "required", "admin_password_file": str(password)}
    with broker(workspace, name, **settings) as served:
        yield served


def _login(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
    }


def _create_tester(admin_client: dict[str, str]) -> None:
    """Not a superuser: ACLs that deny something must hold for it."""
    admin = AdminClient(dict(admin_client))
    user, password = _TESTER
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
    upsertion = UserScramCredentialUpsertion(user, info, password.encode())
    for done in admin.alter_user_scram_credentials([upsertion]).values():
        done.result(_SECONDS)
    everything = [
        AclBinding(
            kind,
            "kafka-cluster" if kind is ResourceType.BROKER else "*",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind in (
            ResourceType.TOPIC,
            ResourceType.GROUP,
            ResourceType.BROKER,
            ResourceType.TRANSACTIONAL_ID,
        )
    ]
    for created in admin.create_acls(everything).values():
        created.result(_SECONDS)


_STARTERS: dict[str, Callable[[Workspace, str], AbstractContextManager[Scenario]]] = {
    DEFAULT: _default,
    NO_AUTO_CREATION: _no_auto_creation,
    COMPACTION: _compaction,
    LOGINS: _logins,
    ADMIN: _admin,
    TLS: _tls,
}
