"""`status`, `top`, `disk`, `connection`, `transaction` and `config`: the broker as an operator sees it."""

import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from posthouse.cli.screens import disk_space, headline
from posthouse.cli.sizes import rounded_size
from posthouse.cli.snapshot import Snapshot, Totals
from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from posthouse.protocols.admin.traffic_totals import TrafficView
from tests.cli.programs import PROGRAM, SECONDS, Serving, environment, inside, one_sentence


def output(serving: Serving, *arguments: str) -> str:
    done = inside(*arguments, admin=serving.admin)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def parsed(serving: Serving, *arguments: str) -> Any:
    return json.loads(output(serving, *arguments, "--json"))


@pytest.fixture
def lagging(serving: Serving, topic: str) -> str:
    """A topic with 100 records, of which the group of the same name has read 10."""
    with Client(serving.kafka) as client:
        client.create_topic(topic, partitions=1)
        with client.producer(topic) as producer:
            for _ in range(100):
                producer.send(b"x" * 1000)
        client.commit_offsets(topic, {(topic, 0): 10})
    return topic


def test_status_is_one_screen(serving: Serving, lagging: str) -> None:
    first, *lines = output(serving, "status", "-n", "1000").splitlines()
    assert first.startswith("posthouse ") and "ready" in first
    text = "\n".join(lines)
    assert f"listener kafka  {serving.kafka}" in text
    assert any(line.split()[:1] == [lagging] and line.split()[-1] == "90" for line in lines)
    assert "free of" in text
    assert any(line.split()[:2] == [lagging, "topic"] for line in lines)


def test_status_for_machines(serving: Serving, lagging: str) -> None:
    found = parsed(serving, "status", "-n", "1000")
    assert found["ready"] is True and found["reasons"] == []
    assert {"name": lagging, "lag": 90}.items() <= next(
        each for each in found["lagging_groups"] if each["name"] == lagging
    ).items()
    assert found["disk"]["free"] > 0


def test_top_shows_one_screen_where_there_is_no_terminal(serving: Serving) -> None:
    assert output(serving, "top", "--once").startswith("posthouse ")
    assert output(serving, "top").startswith("posthouse ")


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_ends_by_a_key_also_on_a_small_terminal(serving: Serving, key: bytes) -> None:
    terminal, end = pty.openpty()
    watching = subprocess.Popen(
        [*PROGRAM, "top", "--interval", "30"],
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment(POSTHOUSE_ADMIN_ADDRESS=serving.admin, TERM="xterm", LINES="6"),
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(end)
    shown = b""
    while b"Ctrl-C ends" not in shown:
        shown += os.read(terminal, 65536)
    os.write(terminal, key)
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:
        pass  # how Linux says that the other end is closed
    assert watching.wait(SECONDS) == 0
    os.close(terminal)
    assert b"ready" in shown and b"Traceback" not in shown


def test_disk(serving: Serving, lagging: str) -> None:
    first, _, header, *lines = output(serving, "disk", "-n", "1000").splitlines()
    assert "free of" in first and header.split() == ["what", "kind", "bytes", "share"]
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows[lagging][1:4] == ["topic", "100", "KiB"] or rows[lagging][3] == "KiB"
    assert "(journal)" in rows
    assert any(each["name"] == lagging for each in parsed(serving, "disk", "-n", "1000")["logs"])


def test_connections(serving: Serving) -> None:
    with Client(serving.kafka) as client:
        client.topics()
        host, port = client._cluster.any()._socket.getsockname()
        found = parsed(serving, "connection", "list")
        assert any(each["peer"] == f"{host}:{port}" and each["protocol"] == "kafka" for each in found)
        assert f"{host}:{port}" in output(serving, "connection", "list", "--search", str(port))
    missing = inside("connection", "close", "127.0.0.1:1", admin=serving.admin)
    assert "there is no connection from '127.0.0.1:1'" in one_sentence(missing, 1)


def test_transactions(serving: Serving) -> None:
    done = inside("transaction", "list", admin=serving.admin)
    assert (done.returncode, done.stderr) == (0, "no transaction is open\n")
    assert parsed(serving, "transaction", "list", "--all") == []
    assert "nope" in one_sentence(inside("transaction", "abort", "nope", admin=serving.admin), 1)


def test_half_messages(serving: Serving) -> None:
    assert inside("half-message", "list", admin=serving.admin).stderr == "no half message is undecided\n"
    with Client(serving.kafka) as client:
        client.create_topic("halves", partitions=1)
    with AdminClient(serving.admin) as admin:
        body = {"topic": "halves", "group": "g", "value": "v"}
        yes, no = (admin.post("/v1/half-messages", body | {"name": name})["id"] for name in ("yes", "no"))
    assert [each["name"] for each in parsed(serving, "half-message", "list")] == ["yes", "no"]
    assert parsed(serving, "half-message", "list", "--group", "other") == []
    [row] = [line for line in output(serving, "half-message", "list").splitlines() if "yes" in line]
    assert "halves" in row
    shown = inside("half-message", "show", str(yes), admin=serving.admin)
    assert json.loads(shown.stdout)["value"]["data"] == "v"
    done = inside("half-message", "commit", str(yes), admin=serving.admin)
    assert (done.returncode, done.stderr) == (0, f"committed half message {yes}\n")
    assert parsed(serving, "half-message", "rollback", str(no))["outcome"] == "rolled-back"
    late = one_sentence(inside("half-message", "commit", str(no), admin=serving.admin), 1)
    assert "was rolled back, or parked before" in late
    assert parsed(serving, "half-message", "list") == []


def test_the_settings_of_a_broker(serving: Serving) -> None:
    found = {each["name"]: each for each in parsed(serving, "config", "describe")}
    assert found["kafka"]["source"] == "flag" and found["default_partitions"]["value"] == "4"
    changed = output(serving, "config", "describe", "--changed")
    assert "\nkafka " in changed and "default_partitions" not in changed
    assert len(parsed(serving, "config", "describe", "--search", "partitions")) == 1


@pytest.mark.parametrize("command", [["status"], ["queue", "list"], ["disk"]], ids=" ".join)
def test_without_a_broker(command: list[str]) -> None:
    sentence = one_sentence(inside(*command, admin="127.0.0.1:1"), 1)
    assert sentence == (
        "no broker answers at 127.0.0.1:1; start one with 'posthouse serve' or give --admin with the address "
        "of its HTTP listener (setting admin; it may be off)"
    )


@pytest.mark.parametrize("command", [["status"], ["top", "--once"], ["queue", "list"]], ids=" ".join)
def test_at_the_port_for_other_clients(serving: Serving, command: list[str]) -> None:
    for address in (serving.kafka, serving.amqp):
        assert one_sentence(inside(*command, admin=address), 1) == (
            f"what answers at {address} does not speak HTTP as a Posthouse does; give --tls or --ca FILE if "
            "it uses TLS there, or give the address of its HTTP listener with --admin (port 15672 by default)"
        )


@pytest.mark.parametrize("command", [["status"], ["top", "--once"]], ids=" ".join)
def test_https_where_the_broker_has_no_tls(serving: Serving, command: list[str]) -> None:
    sentence = one_sentence(inside(*command, admin=f"https://{serving.admin}"), 1)
    assert "does not speak TLS; give the address of a TLS listener, or leave out --tls" in sentence


class _Unready(BaseHTTPRequestHandler):
    """A broker whose disk is full, with counters that rise by 100 from one look to the next."""

    looks: ClassVar[int] = 0
    traffic: ClassVar[dict[str, int]] = dict.fromkeys(TrafficView.__struct_fields__, 0)
    answers: ClassVar[dict[str, Any]] = {
        "/v1/overview": {
            "version": "1",
            "process": 1,
            "ready": False,
            "reasons": ["the disk is full"],
            "topics": 1,
            "groups": 0,
            "queues": 0,
            "exchanges": 0,
            "listeners": [],
        },
        "/v1/disk": {"free": None, "total": None, "journal": None, "logs_bytes": 0, "logs": []},
    }

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        answer = self.answers.get(path, {"items": [], "total": 0, "next": None})
        if path == "/v1/overview":
            type(self).looks += 1
            answer["traffic"] = self.traffic | {"records_in": 100 * self.looks}
        text = json.dumps(answer)
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def unready() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Unready)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_broker_that_is_not_ready(unready: str) -> None:
    done = inside("status", admin=unready)
    assert done.returncode == 1 and "NOT READY: the disk is full" in done.stdout
    assert "everything is kept in memory" in done.stdout
    assert "/s published" in done.stdout


def test_rates_come_from_the_counters(unready: str) -> None:
    rates = json.loads(inside("status", "--json", admin=unready).stdout)["rates"]
    assert 0 < rates["records_in"] <= 100 and rates["published"] == 0


def test_rates_of_a_broker_that_was_started_again() -> None:
    before, after = Totals(counts={"a": 10.0}, read_at=0.0), Totals(counts={"a": 4.0, "b": 1.0}, read_at=2.0)
    assert after.rates(before) == {"a": 0, "b": 0}
    assert Totals(counts={"a": 20.0}, read_at=2.0).rates(before) == {"a": 5.0}
    assert before.rates(before) == {}


def test_sizes_for_people() -> None:
    sizes = (0, 999, 1500, 200 * 1024, 5 * 2**30, 3 * 2**40)
    assert [rounded_size(size) for size in sizes] == [
        "0 B",
        "999 B",
        "1.5 KiB",
        "200 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]


def test_a_headline_and_a_disk() -> None:
    overview = {"version": "1", "ready": True, "reasons": [], "process": 7}
    snapshot = Snapshot(
        overview=overview,
        groups=[],
        queues=[],
        transactions=[],
        disk={},
        totals=Totals(counts={}, read_at=0),
        storage={},
    )
    assert headline(snapshot) == "posthouse 1   ready   process 7"
    assert disk_space({"free": 2**30, "total": 2**32}) == "1.0 GiB free of 4.0 GiB (25%)"
