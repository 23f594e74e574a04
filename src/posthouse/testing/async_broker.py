"""A broker in the caller's event loop."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from posthouse.app import App
from posthouse.descriptors import allow_many_descriptors
from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.protocols.front_end import FrontEnd
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.service_url import ServiceUrl
from posthouse.settings import Address, Authentication, Settings, listener_names
from posthouse.testing.listener_addresses import ListenerAddresses

if TYPE_CHECKING:
    from posthouse.node import Node

_ANY_PORT = Address("127.0.0.1", 0)
_RETENTION_CHECK_SECONDS = 86_400.0
"""Tests write records with fixed times, long ago. They must not be gone when a test reads them."""


class AsyncBroker(ListenerAddresses):
    """A broker as `async with AsyncBroker() as broker:`. Kafka clients connect to `broker.kafka`, AMQP
    clients to `broker.amqp`, and clients of any protocol to `broker.address(name)`.

    The broker keeps everything in memory unless `data` names a directory, or `database` and `objects` (URLs,
    as for `posthouse serve`) a storage that brokers share. It writes an audit log only into `data`. With
    `users` (name to password) clients have to log in, and the first user is the superuser. With
    `tls_certificate` and `tls_key` there are `broker.kafka_tls` and `broker.amqp_tls` as well. RocketMQ is
    served with `rocketmq=Address("127.0.0.1", 0)`. Other arguments are settings, as in
    `posthouse.settings.Settings`. Retention and compaction run once a day, so that records with times in the
    past stay; set `retention_check_seconds` to test them. `front_ends` are the served protocols; protocols
    that are not part of Posthouse declare their listeners in a subclass of `Settings`, `settings_class`.
    """

    def __init__(
        self,
        *,
        data: Path | str | None = None,
        database: str | None = None,
        objects: str | None = None,
        users: Mapping[str, str] | None = None,
        front_ends: Sequence[FrontEnd] = FRONT_ENDS,
        settings_class: type[Settings] = Settings,
        **settings: Any,
    ) -> None:
        with_tls = settings.get("tls_certificate") is not None
        for name in listener_names(settings_class, with_tls=with_tls, with_optional=False):
            settings.setdefault(name, _ANY_PORT)
        settings.setdefault("retention_check_seconds", _RETENTION_CHECK_SECONDS)
        self._front_ends = front_ends
        self._users = dict(users or {})
        if self._users:
            settings["authentication"] = Authentication.REQUIRED
            settings["superusers"] = (next(iter(self._users)), *settings.get("superusers", ()))
        if data is not None:
            settings["data"] = Path(data)
        else:
            settings.setdefault("audit", None)  # a test leaves nothing in its working directory
        if database is not None:
            if front_ends is not FRONT_ENDS:
                raise InvalidConfig("a broker on a shared storage serves the protocols of Posthouse only")
            settings["database"] = ServiceUrl.database(database)
        if objects is not None:
            settings["objects"] = ServiceUrl.objects(objects)
        self.settings = settings_class(memory=data is None and database is None, **settings)
        self._app: App | None = None
        self._node: Node | None = None

    @property
    def app(self) -> App:
        """What serves clients. A broker on a shared storage has it while it holds the lease."""
        app = self._app if self._node is None else self._node.parts.life.app
        if app is None:
            raise RuntimeError("the broker is not running; use it inside its with block")
        return app

    def address(self, listener: str) -> str:
        return str(self.app.listeners[listener])

    async def __aenter__(self) -> Self:
        self._app = await (self._started_with_users() if self._users else self._started(self.settings))
        return self

    async def _started_with_users(self) -> App:
        """Start with users: the first password has to be in a file."""
        (_, password), *others = self._users.items()
        with tempfile.NamedTemporaryFile("w", prefix="posthouse-password-") as file:
            file.write(password)
            file.flush()
            app = await self._started(replace(self.settings, admin_password_file=Path(file.name)))
        try:
            for user, password in others:
                await app.broker.access.users.set_password(user, password)
        except BaseException:
            await self._stop(app)
            raise
        return app

    async def _started(self, settings: Settings) -> App:
        allow_many_descriptors()
        if settings.database is not None:
            return await self._started_on_shared_storage(settings)
        app = App(settings, front_ends=self._front_ends)
        await app.start()
        return app

    async def _started_on_shared_storage(self, settings: Settings) -> App:
        # Only brokers that share their storage need it, and the packages of its extra.
        from posthouse.node import Node
        from posthouse.shared_storage import SharedStorages

        node = Node(settings, SharedStorages(settings, SystemClock()))
        await node.start()
        app = node.parts.life.app
        if app is None:
            await node.stop()
            raise RuntimeError("the broker does not serve: the database has lost commits")
        self._node = node
        return app

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        app, self._app = self._app, None
        if app is not None:
            await self._stop(app)

    async def _stop(self, app: App) -> None:
        node, self._node = self._node, None
        await (app.stop() if node is None else node.stop())
