"""`posthouse webhook …`, with a broker process and an HTTP server."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from posthouse.cli.rates import parse_rate
from posthouse.client import Client
from tests.cli.programs import Serving, inside, one_sentence


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    directory = tmp_path_factory.mktemp("webhooks") / "data"
    with Serving(directory, "--webhook-allow", "127.0.0.0/8") as serving:
        with Client(serving.kafka) as client:
            client.create_topic("orders", partitions=1)
        yield serving


def test_the_commands(pushing: Serving, url: str, tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> str:
        done = inside("webhook", *arguments, admin=pushing.admin)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "there are no webhooks yet" in run("list")
    created = run("create", "shop", "--topic", "orders", "--url", f"{url}/hook", "--rate", "6000/m")
    assert "whsec_" in created and "created webhook 'shop'" in created
    [row] = [line for line in run("list").splitlines() if line.startswith("shop")]
    assert "topic orders" in row and " ok " in row
    assert json.loads(run("show", "shop"))["rate"] == 100
    assert "200 OK" in run("test", "shop")
    assert "changed" in run("alter", "shop", "--url", f"{url}/broken", "--concurrency", "2")
    failed = inside("webhook", "test", "shop", admin=pushing.admin)
    assert failed.returncode == 1 and "500 Internal Server Error" in failed.stderr
    assert "paused" in run("pause", "shop", "--reason", "moving")
    assert " paused " in run("list")
    assert "resumed" in run("resume", "shop")
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("whsec_" + "YWJj" * 8 + "\n")
    assert secret.read_text().strip() in run("rotate", "shop", "--valid", "7d", "--secret-file", secret)
    assert "goes on from there" in run("replay", "shop", "--since", "2 hours ago")
    assert "deleted" in run("delete", "shop")
    assert json.loads(run("list", "--json")) == []


def test_misuse(pushing: Serving, url: str) -> None:
    for arguments, says in (
        (["create", "a", "--url", url], "either a topic or a queue"),
        (["create", "a", "--topic", "orders", "--url", url, "--rate", "fast"], "write for example 100/s"),
        (["create", "a", "--topic", "none", "--url", url], "there is no topic 'none'"),
        (["show", "none"], "there is no webhook 'none'"),
        (["replay", "none", "--since", "yesterday"], "neither a duration"),
    ):
        done = inside("webhook", *arguments, admin=pushing.admin)
        assert says in one_sentence(done, done.returncode) and done.returncode in (1, 2)


@pytest.mark.parametrize(("text", "rate"), [("100/s", 100), ("6000/m", 100), ("1.5", 1.5), ("3600/h", 1)])
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate
