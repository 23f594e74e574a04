"""Kafka Connect, a worker on its own: lines of a file become records, and lines of another file."""

import shutil
import socket
import time
from pathlib import Path

import pytest

from posthouse.testing import running_broker
from tests.java.conftest import Program

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(240)]

WORKER = """\
bootstrap.servers={kafka}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={home}/offsets
offset.flush.interval.ms=200
listeners=http://127.0.0.1:{port}
plugin.path={home}/plugins
plugin.discovery=service_load
"""
SOURCE = """\
name=source
connector.class=org.apache.kafka.connect.file.FileStreamSourceConnector
tasks.max=1
file={home}/in.txt
topic=lines
"""
SINK = """\
name=sink
connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector
tasks.max=1
file={home}/out.txt
topics=lines
"""


def test_from_file_to_file(java_connect: Path, start: Program, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = [f"line {number}" for number in range(200)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines[:100]))
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    [jar] = java_connect.glob("connect-file-*.jar")
    shutil.copy(jar, plugins)
    with running_broker(data=tmp_path / "data") as broker:
        for name, text in (("worker", WORKER), ("source", SOURCE), ("sink", SINK)):
            filled = text.format(kafka=broker.kafka, home=tmp_path, port=port)
            (tmp_path / f"{name}.properties").write_text(filled)
        files = [str(tmp_path / f"{name}.properties") for name in ("worker", "source", "sink")]
        worker = start(java_connect, "org.apache.kafka.connect.cli.ConnectStandalone", *files)
        wait_for(tmp_path / "out.txt", lines[:100], tmp_path / "stderr-0")
        with (tmp_path / "in.txt").open("a") as more:
            more.writelines(f"{line}\n" for line in lines[100:])
        wait_for(tmp_path / "out.txt", lines, tmp_path / "stderr-0")
        worker.terminate()
        worker.communicate(timeout=60)


def wait_for(file: Path, lines: list[str], errors: Path) -> None:
    deadline = time.monotonic() + 100
    found: list[str] = []
    while found != lines:
        assert time.monotonic() < deadline, f"{len(found)} lines; {errors.read_text()[-2000:]}"
        time.sleep(0.1)
        found = file.read_text().splitlines() if file.exists() else []
