"""Brokers of one cluster as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.cluster.object_stores import Objects
from tools.cluster.services import free_port

POSTHOUSE = [sys.executable, "-m", "posthouse.cli.main"]


class BrokerProcess:
    """A broker keeps its name and its ports when it is started again."""

    def __init__(self, name: str, place: Path, database: str, objects: Objects) -> None:
        self.name = name
        self._log = place / f"broker-{name}.log"
        self._environment = {
            **os.environ,
            **objects.environment,
            "POSTHOUSE_DATABASE": database,
            "POSTHOUSE_OBJECTS": objects.url,
        }
        self.kafka = f"127.0.0.1:{free_port()}"
        self.amqp = f"127.0.0.1:{free_port()}"
        self.admin = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> str:
        """Returns the role with which it has started."""
        listeners = ("--kafka", self.kafka, "--amqp", self.amqp, "--admin", self.admin)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*POSTHOUSE, "serve", "--broker-name", self.name, *listeners],
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready:
            raise RuntimeError(f"broker {self.name} did not start; see {self._log}")
        return str(json.loads(ready)["role"])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def status(self) -> dict[str, Any]:
        """As any operator sees it, with or without this broker."""
        command = [*POSTHOUSE, "storage", "status", "--json"]
        found = subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True)
        status: dict[str, Any] = json.loads(found.stdout)
        return status
