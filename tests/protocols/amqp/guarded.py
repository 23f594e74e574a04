"""A broker whose clients have to log in, with users and permissions that a test gives out."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pamqp.commands import Exchange, Queue

from posthouse.broker.access.acls import Acl, Pattern
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.model.scram import Mechanism
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.settings import Authentication
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import Wire

ADMIN = "admin"
PASSWORD = "correct horse"
REFUSED = "ACCESS_REFUSED - {} in vhost '/' refused for user 'ann'"
AT_ONCE = AmqpLimits(failed_login_seconds=0.0)


class Recorded(list[tuple[str, str, str, bool]]):
    """What the audit log was told: who, what, to what, and whether it was allowed."""

    def record(
        self,
        principal: Principal | str,
        peer: str,
        protocol: str,
        action: str,
        resource: str,
        *,
        allowed: bool,
        detail: str = "",
    ) -> int:
        assert protocol == "amqp" and peer.startswith("127.0.0.1:")
        self.append((str(principal), action, resource, allowed))
        return 0


class GuardedRig(Rig):
    def __init__(self, *, limits: AmqpLimits = AT_ONCE, **made: Any) -> None:
        self._directory = tempfile.TemporaryDirectory()
        file = Path(self._directory.name) / "password"
        file.touch(mode=0o600)
        file.write_text(PASSWORD)
        super().__init__(
            limits=limits, authentication=Authentication.REQUIRED, admin_password_file=file, **made
        )
        self.access = self.broker.access
        self.recorded = Recorded()
        self.access.audit.record = self.recorded.record  # type: ignore[method-assign]

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        self._directory.cleanup()

    async def with_user(self, name: str, *permitted: tuple[Operation, str]) -> Self:
        await self.access.users.set_password(
            name, PASSWORD, iterations=MIN_ITERATIONS, only=Mechanism.SHA_256
        )
        await self.permit(name, *permitted)
        return self

    async def permit(self, user: str, *permitted: tuple[Operation, str], allow: bool = True) -> None:
        """A name that ends with an asterisk is a prefix, the asterisk alone is everything."""
        await self.access.acls.add([_acl(user, operation, name, allow) for operation, name in permitted])

    async def forbid(self, user: str) -> None:
        """Everything that was permitted."""
        await self.access.acls.remove(lambda acl: acl.principal == str(Principal(user)))

    async def log_in(self, user: str = ADMIN, **negotiated: Any) -> Wire:
        """A connection with channel 1."""
        return await self.open(user=user, password=PASSWORD, **negotiated)


def _acl(user: str, operation: Operation, name: str, allow: bool) -> Acl:
    is_prefix = name.endswith("*") and name != "*"
    return Acl(
        kind=Kind.TOPIC,
        name=name.removesuffix("*") if is_prefix else name,
        pattern=Pattern.PREFIXED if is_prefix else Pattern.LITERAL,
        principal=str(Principal(user)),
        operation=operation,
        allow=allow,
    )


async def prepared(rig: GuardedRig) -> Wire:
    """What the cases speak of is there. The connection of somebody who may do everything."""
    admin = await rig.log_in(ADMIN)
    for exchange in ("x", "y"):
        await admin.call(1, Exchange.Declare(exchange=exchange, exchange_type="fanout"))
    for queue in ("q", "q2"):
        await admin.call(1, Queue.Declare(queue=queue))
    return admin
