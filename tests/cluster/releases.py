"""Later releases, as brokers of an upgrade see them: copies of this one with more versions of the tables."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posthouse
from posthouse.settings import Address
from tests.cluster.nodes import node_settings
from tests.served import ANY_PORT, ServedBroker

COMPATIBLE = """
-- compatible from version {before}

ALTER TABLE log ADD COLUMN colour_{version} text;
ALTER TABLE broker ADD COLUMN zone_{version} text NOT NULL DEFAULT '';
ALTER TABLE topic ADD COLUMN note_{version} text;
CREATE TABLE later_{version} (id integer PRIMARY KEY);
CREATE OR REPLACE FUNCTION renew_lease(p_holder uuid, p_epoch bigint, p_seconds double precision)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lease SET until = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE holder = p_holder AND epoch = p_epoch;
    RETURN FOUND;
END $$;
"""
INCOMPATIBLE = "ALTER TABLE topic ADD COLUMN other_{version} text;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    version: str
    path: Path | None
    """Of the copy; None is the release that the test is of."""

    @property
    def environment(self) -> dict[str, str]:
        return {} if self.path is None else {"PYTHONPATH": str(self.path)}

    def serve(self, data: Path, **settings: Any) -> ServedBroker:
        return ServedBroker(data, environment=self.environment, **settings)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "posthouse", *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


THIS = Release(version=posthouse.__version__, path=None)


def later_release(directory: Path, version: str, *schemas: str) -> Release:
    """With these versions of the tables after the first one."""
    package = directory / "posthouse"
    shutil.copytree(Path(posthouse.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / "__init__.py").read_text()
    assert posthouse.__version__ in text
    (package / "__init__.py").write_text(text.replace(posthouse.__version__, version))
    for number, statements in enumerate(schemas, start=2):
        place = package / "storage" / "shared" / "schema" / f"{number:04}"
        place.mkdir()
        (place / "01_all.sql").write_text(
            statements.replace("{version}", str(number)).replace("{before}", str(number - 1))
        )
    return Release(version=version, path=directory)


_PORT_SECONDS = 30.0


def _is_free(address: Address) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return False
    return True


class Brokers:
    """Processes of any release, which keep their addresses."""

    def __init__(self, url: str, data: Path) -> None:
        settings = node_settings(url, "x")
        self._shared = {"database": url, "objects": settings.objects and settings.objects.url}
        self._data = data
        self._running: dict[str, ServedBroker] = {}
        self._addresses: dict[str, dict[str, Address]] = {}

    def start(self, release: Release, name: str) -> None:
        self._running[name] = made = self._served(release, name)
        self._addresses[name] = {
            "kafka": Address.parse(made.bootstrap),
            "amqp": Address.parse(made.amqp),
        }

    def _served(self, release: Release, name: str) -> ServedBroker:
        """While a broker is stopped, a connection of another program may get its port, for a moment. Raises
        AssertionError if the broker does not start for another reason."""
        addresses = self._addresses.get(name, {"kafka": ANY_PORT, "amqp": ANY_PORT})
        until = time.monotonic() + _PORT_SECONDS
        while True:
            try:
                return release.serve(
                    self._data / name, broker_name=name, log_level="warning", **addresses, **self._shared
                )
            except AssertionError:
                if all(_is_free(each) for each in addresses.values()) or time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def stop(self, name: str) -> None:
        self._running.pop(name).stop()

    @property
    def kafka(self) -> str:
        return ",".join(str(each["kafka"]) for each in self._addresses.values())

    @property
    def amqp(self) -> list[str]:
        return [str(each["amqp"]) for each in self._addresses.values()]

    def admin(self, name: str) -> str:
        return self._running[name].admin

    def stop_all(self) -> None:
        for each in self._running.values():
            each.stop()


@contextmanager
def brokers_of(url: str, data: Path) -> Iterator[Brokers]:
    made = Brokers(url, data)
    try:
        yield made
    finally:
        made.stop_all()
