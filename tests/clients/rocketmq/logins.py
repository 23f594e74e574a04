"""Brokers that want logins, and access keys for RocketMQ's clients."""

import json
import time
from pathlib import Path
from typing import Any

from posthouse.client.admin_client import AdminClient
from posthouse.client.security import Security
from posthouse.testing import ThreadBroker

_SECONDS = 30.0
_USERS = {"admin": "the admin's password", "alice": "alice's password"}


class BrokerWithLogins(ThreadBroker):
    """It has a user `alice`, who may do nothing yet."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(data=directory / "data", users=_USERS, **settings)
        self._audit = directory / "data" / "audit.log"

    def _admin(self) -> AdminClient:
        return AdminClient(self.admin, security=Security(user="admin", password=_USERS["admin"]))

    def access_key(self) -> tuple[str, str]:
        """A new one of alice, and its secret."""
        with self._admin() as admin:
            made = admin.post("/v1/users/alice/access-keys", {})
        return made["access_key"], made["secret"]

    def wait_for_refusals(self, wanted: set[tuple[str, str]]) -> None:
        """Of RocketMQ's clients: action and resource, as the audit log has them once a second."""
        late = time.monotonic() + _SECONDS
        while (found := self._refusals()) != wanted:
            assert time.monotonic() < late, found
            time.sleep(0.05)

    def _refusals(self) -> set[tuple[str, str]]:
        entries = [json.loads(line) for line in self._audit.read_text().splitlines()]
        return {
            (each["action"], each["resource"])
            for each in entries
            if each["protocol"].startswith("rocketmq") and not each["allowed"]
        }

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
