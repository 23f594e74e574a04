"""A broker in the event loop that the caller runs."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from posthouse.app import App
from posthouse.settings import Address, Settings


class AsyncBroker:
    """`async with AsyncBroker() as broker:` and `broker.kafka` is where Kafka clients connect, `broker.amqp`
    where RabbitMQ's do.

    Everything is kept in memory unless `data` names a directory. Other arguments are settings, as in
    `posthouse.settings.Settings`.
    """

    def __init__(self, *, data: Path | str | None = None, **settings: Any) -> None:
        settings.setdefault("kafka", Address("127.0.0.1", 0))
        settings.setdefault("amqp", Address("127.0.0.1", 0))
        if data is not None:
            settings["data"] = Path(data)
        self.settings = Settings(memory=data is None, **settings)
        self._app: App | None = None

    @property
    def app(self) -> App:
        if self._app is None:
            raise RuntimeError("the broker is not running; use it inside its with block")
        return self._app

    @property
    def kafka(self) -> str:
        """The bootstrap address."""
        return str(self.app.listeners["kafka"])

    @property
    def amqp(self) -> str:
        """Where AMQP clients connect, as host:port; `amqp://guest:guest@` goes before it."""
        return str(self.app.listeners["amqp"])

    async def __aenter__(self) -> Self:
        app = App(self.settings)
        await app.start()
        self._app = app
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        app, self._app = self.app, None
        await app.stop()
