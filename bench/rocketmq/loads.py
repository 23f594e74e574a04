"""The loads as processes of their own: Java and Python clients, which print what they measured as JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.rocketmq.peers import ADDRESS, ENDPOINTS, Failed
from tests.java import jars

PROGRAM = Path(__file__).parent / "java" / "Load.java"
_LIMIT_SECONDS = 3600

Measured = dict[str, float]


@dataclass(frozen=True, slots=True)
class Loads:
    class_path: str

    def java(
        self, what: str, topic: str, *numbers: int, when_sent: Callable[[], None] | None = None
    ) -> Measured:
        """`when_sent` is called between the two parts of a load that has them."""
        options = ["-Xmx1g", "-XX:+UseSerialGC", "-Drocketmq.client.logLevel=ERROR"]
        options.append(f"-Duser.home={jars.CACHE / 'home'}")
        command = ["java", *options, "-cp", self.class_path, PROGRAM.stem, ADDRESS, what, topic]
        return _finished([*command, *map(str, numbers)], when_sent)

    def grpc(self, what: str, topic: str, size: int, seconds: float) -> Measured:
        command = [sys.executable, "-m", "bench.rocketmq.grpc_load", what, ENDPOINTS, topic, str(size)]
        return _finished([*command, str(seconds)], None)


def _finished(command: list[str], when_sent: Callable[[], None] | None) -> Measured:
    environment = os.environ | {"HOME": str(jars.CACHE / "home")}  # the clients' logs
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        if when_sent is not None and process.stdout.readline() == "sent\n":
            when_sent()
        printed, errors = process.communicate(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"a load did not end in {_LIMIT_SECONDS} s: {' '.join(command[-6:])}") from None
    finally:
        process.kill()
        process.wait()
    lines = printed.splitlines()
    if process.returncode or not lines:
        raise Failed(f"{' '.join(command[-6:])}: {errors[-500:]}")
    measured: Measured = json.loads(lines[-1])
    if failures := measured.pop("failed", 0):
        raise Failed(f"{' '.join(command[-6:])}: {failures:.0f} requests failed: {errors[:500]}")
    return measured
