"""A client that signs its calls, and brokers where that is required."""

import hmac
from pathlib import Path
from typing import Any

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.rocketmq.grpc.logins import AUTHORIZATION, DATE_TIME
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import ANY_PORT
from tests.protocols.rocketmq.grpc.messaging_client import CLIENT_ID, MessagingClient

USERS = {"admin": "admin's password", "ann": "ann's password", "ben": "ben's password"}
"""`ann` has the access key `ann-key`, and so on; their secrets are the passwords. `admin` may do anything."""
DATE = "20261119T203000Z"

Permission = tuple[Operation, Kind, str]


def signed(key: str, secret: str, date: str = DATE) -> dict[str, str]:
    signature = hmac.digest(secret.encode(), date.encode(), "sha1").hex()
    return {
        DATE_TIME: date,
        AUTHORIZATION: f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders={DATE_TIME}, Signature={signature}",
    }


class SignedClient(MessagingClient):
    """Its client id is the name of its user."""

    def __init__(self, address: str, user: str, key: str | None = None, secret: str | None = None) -> None:
        super().__init__(address, user)
        self.says(signed(key or f"{user}-key", secret or USERS[user]))

    def says(self, headers: dict[str, str]) -> None:
        """In all calls from now on, beside its client id."""
        id = dict(self.metadata)[CLIENT_ID]
        self.metadata = ((CLIENT_ID, id), *headers.items())


def secured(data: Path | None = None, **settings: Any) -> AsyncBroker:
    return AsyncBroker(rocketmq=ANY_PORT, rocketmq_grpc=ANY_PORT, users=USERS, data=data, **settings)


async def add_keys(broker: AsyncBroker) -> None:
    for user, secret in USERS.items():
        await broker.app.broker.access.access_keys.add(user, f"{user}-key", secret=secret)


def of(broker: AsyncBroker, user: str) -> SignedClient:
    return SignedClient(broker.address("rocketmq_grpc"), user)


async def allow(broker: AsyncBroker, user: str, *permissions: Permission) -> None:
    """These, and nothing else that was allowed before."""
    acls = broker.app.broker.access.acls
    principal = f"User:{user}"
    await acls.remove(lambda each: each.principal == principal)
    await acls.add(
        [
            Acl(principal=principal, operation=operation, kind=kind, name=name)
            for operation, kind, name in permissions
        ]
    )
