"""Two rounds of the bank, and one of its controls: the short slice of `make torture-bank`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from examples.bank.accounts import Order, transfer
from examples.bank.audit import audit
from examples.bank.credits import credit
from examples.bank.opening import RECEIVERS, SENDERS, open_bank
from posthouse.consistency import Inbox
from tests.directories import IN_MEMORY
from tests.postgres import PostgresServer, need_postgres, new_database
from tests.torture.bank.__main__ import main
from tests.torture.bank.controls import CONTROLS, Control
from tests.torture.bank.rounds import CUSTOMERS, run_rounds

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.timeout(600)]

_SEED = 4711
_POSTING = "sender, number, account, amount, is_credited"


@pytest.fixture
def place() -> Iterator[Path]:
    need_postgres()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-bank-") as name:
        yield Path(name)


def test_no_money_is_lost_or_made(place: Path) -> None:
    outcome = run_rounds(place, rounds=2, seed=_SEED, most_kills=6)
    assert outcome.anomalies == []
    assert outcome.rounds == 2
    assert outcome.transfers > CUSTOMERS
    assert outcome.kills


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_promise_broken_on_purpose_is_found(control: Control, place: Path) -> None:
    outcome, is_caught = control.tried(place, _SEED)
    assert is_caught, outcome.anomalies
    assert outcome.logs


@pytest.fixture
def books(postgres: PostgresServer) -> Iterator[tuple[str, str]]:
    """Of a bank with two transfers that were applied, whose receipts have not come."""
    with new_database(postgres) as accounts_url, new_database(postgres) as credits_url:
        open_bank(accounts_url, credits_url)
        with psycopg.connect(accounts_url) as accounts, psycopg.connect(credits_url) as credits:
            for id in ("a", "b"):
                order = Order(id=id, sender=SENDERS[0], receiver=RECEIVERS[0], amount=5)
                transfer(accounts, order)
            assert transfer(accounts, order) is None, "it was made before"
            rows = accounts.execute("SELECT message_id, value FROM posthouse_outbox ORDER BY id").fetchall()
            for id, value in rows:
                with Inbox("credits").once(credits, id):
                    credit(credits, value)
        yield accounts_url, credits_url


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE account SET balance = balance + 1", "money is not conserved"),
        (f"INSERT INTO posting ({_POSTING}) SELECT {_POSTING} FROM posting", "posting 3 of giro-0"),
        ("DELETE FROM posting WHERE number = 1", "posting 1 of giro-0 has the number 2"),
        ("UPDATE posting SET number = 3 - number", "posting 1 of giro-0 has the number 2"),
        ("UPDATE posting SET amount = 6 WHERE number = 2", "postings"),
        ("SELECT 1", "receipts were not applied once each"),
        ("SELECT 1", "the outbox of accounts has 2 messages"),
        ("DELETE FROM posthouse_inbox", "the inbox of credits has 0 messages, for 2 transfers"),
    ],
)
def test_an_auditor_finds_what_is_wrong(books: tuple[str, str], statement: str, finding: str) -> None:
    with psycopg.connect(books[1]) as credits:
        credits.execute(statement.encode())
    assert any(finding in each for each in audit(*books))


def test_misuse_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--report", "no/such/page.md"])
    assert "No such file" in capsys.readouterr().err
