"""The programs of the bank as its README starts them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from posthouse.client import Client
from tests.cli.programs import PROGRAM
from tests.postgres import PostgresServer, new_database
from tests.served import ServedBroker

pytestmark = pytest.mark.timeout(300)

SECONDS = 120.0


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_books_are_right_in_the_end(postgres: PostgresServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        accounts = stack.enter_context(new_database(postgres))
        credits = stack.enter_context(new_database(postgres))
        broker = ServedBroker(tmp_path / "data", amqp="off", admin="off")
        stack.callback(broker.kill)
        options = ["--accounts", accounts, "--credits", credits, "--bootstrap", broker.bootstrap]

        def bank(program: str, *more: str) -> list[str]:
            return [sys.executable, "-m", "examples.bank", program, *options, *more]

        subprocess.run(bank("open"), check=True)
        with Client(broker.bootstrap) as client:
            for topic in ("bank-transfers", "bank-receipts"):
                client.create_topic(topic)
        for url in (accounts, credits):
            relay = [*PROGRAM, "--bootstrap", broker.bootstrap, "outbox", "relay", "--database", url]
            stack.enter_context(running(relay, tmp_path / "relays.log"))
        for program in ("credits", "accounts"):
            stack.enter_context(running(bank(program), tmp_path / f"{program}.log"))
        subprocess.run(bank("teller", "--customers", "60"), check=True)
        deadline = time.monotonic() + SECONDS
        while (done := subprocess.run(bank("audit"), capture_output=True, text=True)).returncode:
            assert time.monotonic() < deadline, done.stdout
            time.sleep(0.5)
        assert done.stdout == "the books are right\n"
