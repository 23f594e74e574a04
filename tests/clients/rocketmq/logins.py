"""Brokers that want logins, and access keys for RocketMQ's clients."""

from pathlib import Path
from typing import Any

from posthouse.client.admin_client import AdminClient
from posthouse.client.security import Security
from posthouse.testing import ThreadBroker

_USERS = {"admin": "the admin's password", "alice": "alice's password"}


class BrokerWithLogins(ThreadBroker):
    """It has a user `alice`, who may do nothing yet."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(data=directory / "data", users=_USERS, **settings)

    def _admin(self) -> AdminClient:
        return AdminClient(self.admin, security=Security(user="admin", password=_USERS["admin"]))

    def access_key(self) -> tuple[str, str]:
        """A new one of alice, and its secret."""
        with self._admin() as admin:
            made = admin.post("/v1/users/alice/access-keys", {})
        return made["access_key"], made["secret"]

    def allow(self, kind: str, *names: str) -> None:
        """Alice may read and write topics, and consume in groups, of these names."""
        operations = ("read", "write", "create") if kind == "topic" else ("read",)
        acls = [
            {"principal": "User:alice", "operation": operation, "kind": kind, "name": name}
            for operation in operations
            for name in names
        ]
        with self._admin() as admin:
            admin.post("/v1/acls", {"acls": acls})
