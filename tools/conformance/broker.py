"""`posthouse serve` on an empty directory, the way a user would start it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.conformance.workspace import SetupError, Workspace

STOP_SECONDS = 30.0


class RunningBroker:
    def __init__(self, process: subprocess.Popen[str], listeners: dict[str, str], log: Path) -> None:
        self._process = process
        self.listeners = listeners
        self.log = log

    @property
    def address(self) -> str:
        """Where Kafka clients connect."""
        return self.listeners["kafka"]

    @property
    def amqp(self) -> str:
        return self.listeners["amqp"]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


@contextmanager
def broker(
    workspace: Workspace, name: str, *, amqp: str | None = None, **settings: str
) -> Iterator[RunningBroker]:
    """A fresh broker with these settings; what it logs is kept in logs/broker-NAME.log."""
    log = workspace.logs / f"broker-{name}.log"
    data = workspace.root / f"data-{name}"
    shutil.rmtree(data, ignore_errors=True)
    command = [
        str(Path(sys.executable).with_name("posthouse")),
        *("serve", "--data", str(data), "--kafka", "127.0.0.1:0"),
        *("--amqp", amqp or "127.0.0.1:0"),
        *("--admin", "off"),
    ]
    # No file, directory or address that the surroundings name may be used by mistake.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTHOUSE_")}
    environment |= {f"POSTHOUSE_{key.upper()}": value for key, value in settings.items()}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, text=True, env=environment, start_new_session=True
        )
    try:
        yield RunningBroker(process, _listeners(process, log), log)
    finally:
        _stop(process)
        if not workspace.keep_data:
            shutil.rmtree(data, ignore_errors=True)


def _listeners(process: subprocess.Popen[str], log: Path) -> dict[str, str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        last = "\n  ".join(log.read_text(errors="replace").splitlines()[-8:])
        raise SetupError(f"the broker did not start; all that it said is in {log}:\n  {last}")
    listeners: dict[str, str] = json.loads(line)["listeners"]
    return listeners


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
