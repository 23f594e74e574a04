"""The broker process: output, signals, and interpreter settings."""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import uvloop

from posthouse.app import App
from posthouse.cli.collector import Collector
from posthouse.cli.invocation import DEFAULT_ADMIN, DEFAULT_BOOTSTRAP
from posthouse.cli.logs import configure_logging
from posthouse.descriptors import allow_many_descriptors
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.settings import Address, Settings

log = logging.getLogger("posthouse")

# Every acknowledgement waits for the flusher thread: it must not wait Python's usual 5 ms for the
# interpreter.
_SWITCH_INTERVAL = 0.0005


class Served(Protocol):
    """What runs until a signal arrives: a broker, or a node that shares its storage with others."""

    @property
    def listeners(self) -> Mapping[str, Address]: ...

    @property
    def descriptions(self) -> list[str]:
        """Which clients connect where."""

    @property
    def may_give_up_start(self) -> bool:
        """Whether `start` can be cancelled when a signal arrives."""

    async def start(self) -> None: ...

    async def ended(self) -> None:
        """Returns if it ends by itself; `stop` then raises the reason."""

    async def stop(self) -> None: ...

    def reload_certificates(self) -> None: ...

    def ready(self) -> dict[str, object]:
        """What the ready line says besides the addresses."""


def run(
    loaded: LoadedSettings, *, hints: bool, make: Callable[[LoadedSettings], Served] | None = None
) -> None:
    """Serve until a signal arrives. `make` is called in the running event loop."""
    settings = loaded.settings
    configure_logging(settings.log_format, settings.log_level)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    allow_many_descriptors()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(loaded, make or _served, hints))


def _served(loaded: LoadedSettings) -> Served:
    if loaded.settings.database is None:
        return App(loaded)
    try:
        # Only brokers that share their storage need it, and the packages of its extra.
        from posthouse.node import Node
        from posthouse.shared_storage import SharedStorages
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "obstore"):
            raise
        raise InvalidConfig(
            f'a shared storage needs the package {error.name}: pip install "posthouse[cluster]"'
        ) from None
    return Node(loaded, SharedStorages(loaded.settings, SystemClock()))


async def _serve(loaded: LoadedSettings, make: Callable[[LoadedSettings], Served], hints: bool) -> None:
    settings = loaded.settings
    stop = _stop_on_signals()
    app = make(loaded)
    if not await _started(app, stop):
        log.info("stopped during the start")
        return
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.reload_certificates)
    print(_ready_line(app), flush=True)
    log.info("ready: %s", ", ".join(f"{name} on {where}" for name, where in app.listeners.items()))
    if hints:
        print(_hints(settings, app), file=sys.stderr)
    collector = Collector()
    collector.start()
    await _first_of(stop.wait(), app.ended())
    log.info("stopping: waiting up to %g s for requests in flight", settings.shutdown_seconds)
    await app.stop()
    collector.stop()
    log.info("stopped")


async def _started(app: Served, stop: asyncio.Event) -> bool:
    """False if the start was given up because the broker is to stop."""
    starting = asyncio.create_task(app.start())
    stopping = asyncio.create_task(stop.wait())
    if app.may_give_up_start:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
    await asyncio.wait([starting])
    stopping.cancel()
    if starting.cancelled():
        return False
    await starting
    return True


async def _first_of(*waiting: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.ensure_future(each) for each in waiting]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for each in tasks:
        each.cancel()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


def _ready_line(app: Served) -> str:
    listeners = {name: str(address) for name, address in app.listeners.items()}
    return json.dumps({"event": "ready", "listeners": listeners, **app.ready()}, separators=(",", ":"))


def _look_inside(app: Served, program: str) -> str:
    admin = app.listeners.get("admin")
    if admin is None:
        return ""
    if str(admin) != DEFAULT_ADMIN:
        program += f" --admin {admin}"
    return (
        "See what the broker does, now and live (metrics for Prometheus are on "
        f"http://{admin}/metrics):\n\n  {program} status\n  {program} top\n\n"
    )


def _hints(settings: Settings, app: Served) -> str:
    """How to send a first message. The commands use Kafka's protocol."""
    kafka = app.listeners.get("kafka")
    program = "posthouse" if shutil.which("posthouse") else sys.argv[0]
    if kafka is None:
        return ""
    if str(kafka) != DEFAULT_BOOTSTRAP:
        program += f" --bootstrap {kafka}"
    if settings.must_log_in:
        program += f" --user {settings.superusers[0]}"
    role = app.ready().get("role")
    return (
        f"\nPosthouse is ready{f' as {role}' if role else ''} for {', for '.join(app.descriptions)}; "
        f"records are kept {_place(settings)}; Ctrl-C stops it.\n"
        "Send a first message from another terminal, and read it:\n\n"
        f"  echo hello | {program} produce greetings\n"
        f"  {program} consume greetings --from-beginning\n\n"
        f"{_look_inside(app, program)}"
        "Run a pipeline on Spark on it (or 'make demo' to watch one with orders of its own):\n\n"
        f"  {program} pipeline init orders\n"
        f"  {program} pipeline run orders\n"
    )


def _place(settings: Settings) -> str:
    if settings.database is not None:
        return f"in {settings.database} and {settings.objects}"
    return "in memory" if settings.memory else f"in {settings.data}"
