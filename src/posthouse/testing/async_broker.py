"""A broker in the caller's event loop."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from posthouse.app import App
from posthouse.descriptors import allow_many_descriptors
from posthouse.protocols.front_end import FrontEnd
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.settings import Address, Authentication, Settings, listener_names

_ANY_PORT = Address("127.0.0.1", 0)


class AsyncBroker:
    """`async with AsyncBroker() as broker:` and `broker.kafka` is where Kafka clients connect, `broker.amqp`
    where RabbitMQ's do. `broker.address(name)` is where those of any protocol do.

    Everything is kept in memory unless `data` names a directory. With `users`, by name and password,
    everybody has to log in, and the first of them may do everything. With `tls_certificate` and `tls_key`
    there are `broker.kafka_tls` and `broker.amqp_tls` as well. Other arguments are settings, as in
    `posthouse.settings.Settings`. `front_ends` are the protocols that are served; those that Posthouse does
    not come with have their listeners in a subclass of `Settings`, `settings_class`.
    """

    def __init__(
        self,
        *,
        data: Path | str | None = None,
        users: Mapping[str, str] | None = None,
        front_ends: Sequence[FrontEnd] = FRONT_ENDS,
        settings_class: type[Settings] = Settings,
        **settings: Any,
    ) -> None:
        for name in listener_names(settings_class, with_tls=settings.get("tls_certificate") is not None):
            settings.setdefault(name, _ANY_PORT)
        self._front_ends = front_ends
        self._users = dict(users or {})
        if self._users:
            settings["authentication"] = Authentication.REQUIRED
            settings["superusers"] = (next(iter(self._users)), *settings.get("superusers", ()))
        if data is not None:
            settings["data"] = Path(data)
        self.settings = settings_class(memory=data is None, **settings)
        self._app: App | None = None

    @property
    def app(self) -> App:
        if self._app is None:
            raise RuntimeError("the broker is not running; use it inside its with block")
        return self._app

    def address(self, listener: str) -> str:
        """Where clients connect, as host:port. Listeners have the names of their settings: "kafka_tls"."""
        return str(self.app.listeners[listener])

    @property
    def kafka(self) -> str:
        """The bootstrap address."""
        return self.address("kafka")

    @property
    def kafka_tls(self) -> str:
        return self.address("kafka_tls")

    @property
    def amqp(self) -> str:
        """Where AMQP clients connect, as host:port; `amqp://guest:guest@` goes before it."""
        return self.address("amqp")

    @property
    def amqp_tls(self) -> str:
        return self.address("amqp_tls")

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
            await app.stop()
            raise
        return app

    async def _started(self, settings: Settings) -> App:
        allow_many_descriptors()
        app = App(settings, front_ends=self._front_ends)
        await app.start()
        return app

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        app, self._app = self.app, None
        await app.stop()
