"""A broker whose clients have to log in, and users for it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posthouse.broker.access.acls import Acl, Pattern
from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.settings import Authentication
from posthouse.testing import ThreadBroker, running_broker
from tests.stored import stored_in

PASSWORD = "p@ss/w0rd"
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Guarded:
    broker: ThreadBroker

    @property
    def host(self) -> str:
        return self.broker.amqp.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.broker.amqp.rpartition(":")[2])

    def url(self, user: str, password: str = "p%40ss%2Fw0rd", vhost: str = "%2F") -> str:
        return f"amqp://{user}:{password}@{self.broker.amqp}/{vhost}"

    @property
    def access(self) -> AccessControl:
        return self.broker.broker.app.broker.access

    def run(self, work: Any) -> None:
        """On the broker's own loop."""
        assert self.broker._loop is not None
        asyncio.run_coroutine_threadsafe(work, self.broker._loop).result(_SECONDS)

    def user(self, name: str, **permitted: str) -> str:
        """Permissions as in `read="orders", write="orders.*"`; an asterisk at the end makes a prefix."""
        self.run(self.access.users.set_password(name, PASSWORD))
        acls = [_acl(name, Operation(operation), topic) for operation, topic in permitted.items()]
        self.run(self.access.acls.add(acls))
        return name


def _acl(user: str, operation: Operation, name: str) -> Acl:
    pattern = Pattern.PREFIXED if name.endswith("*") and name != "*" else Pattern.LITERAL
    if pattern is Pattern.PREFIXED:
        name = name.removesuffix("*")
    return Acl(kind=Kind.TOPIC, name=name, pattern=pattern, principal=f"User:{user}", operation=operation)


@contextmanager
def guarded_broker(directory: Path, **settings: Any) -> Iterator[Guarded]:
    file = directory / "password"
    file.touch(mode=0o600)
    file.write_text(PASSWORD)
    with running_broker(
        **stored_in(), authentication=Authentication.REQUIRED, admin_password_file=file, **settings
    ) as broker:
        yield Guarded(broker)
