"""`posthouse storage …` against a real PostgreSQL."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from posthouse.model.scopes import SCOPES
from posthouse.testing import ThreadBroker
from tests.cli.programs import PROGRAM, environment, posthouse
from tests.postgres import PostgresServer, cluster_only, new_database

SECRET = "hunter2"


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """Empty, without tables; its address has a password, which the server does not ask for."""
    with new_database(postgres) as url:
        yield url.replace("postgres@", f"postgres:{SECRET}@")


@pytest.fixture
def objects(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'objects'}"


def place(database: str, objects: str) -> dict[str, str]:
    return {"POSTHOUSE_DATABASE": database, "POSTHOUSE_OBJECTS": objects}


def test_init_creates_the_tables_and_status_shows_an_empty_storage(database: str, objects: str) -> None:
    done = posthouse("storage", "init", "--database", database, "--objects", objects)
    assert done.returncode == 0, done.stderr
    assert "created the tables, version 1" in done.stderr
    assert "no synchronous standby" in done.stderr
    again = posthouse("storage", "init", **place(database, objects))
    assert "the tables were there" in again.stderr

    shown = posthouse("storage", "status", **place(database, objects))
    assert shown.returncode == 0, shown.stderr
    assert "coordinator   free, epoch 0" in shown.stdout
    assert "free scopes   coordinator groups/00-63" in shown.stdout
    assert "0 logs of 0 topics" in shown.stdout
    found = json.loads(posthouse("storage", "status", "--json", **place(database, objects)).stdout)
    assert found["version"] == found["newest_version"] == 1
    assert found["cluster_id"]
    assert found["brokers"] == []
    assert [each["state"] for each in found["slots"]] == ["open"] + ["free"] * 15
    assert found["objects"] == {"live": 0, "live_bytes": 0, "doomed": 0, "doomed_bytes": 0, "held": 0}
    assert SECRET not in done.stderr + shown.stdout + shown.stderr + json.dumps(found)


def test_status_shows_the_leases_of_all_brokers(database: str, objects: str) -> None:
    posthouse("storage", "init", **place(database, objects))
    with ThreadBroker(database=database, objects=objects, broker_name="one"):
        shown = posthouse("storage", "status", **place(database, objects)).stdout
        found = json.loads(posthouse("storage", "status", "--json", **place(database, objects)).stdout)
        with psycopg.connect(database, autocommit=True) as sql:
            sql.execute("UPDATE posthouse.broker SET is_draining = true")
        draining = posthouse("storage", "status", **place(database, objects)).stdout
    assert "draining" not in shown and "coordinator, draining" in draining
    [lease] = found["leases"]
    assert (lease["holder"], len(lease["scopes"])) == ("one", len(SCOPES))
    assert lease["seconds_left"] > 0 and found["free_scopes"] == []
    [row] = [line.split() for line in shown.splitlines() if "groups/" in line]
    everything = "coordinator groups/00-63 housekeeping/00-15 namespaces/00-15 transactions/00-63"
    assert row == ["one", str(lease["epoch"]), *row[2:-6], str(len(SCOPES)), *everything.split()]
    gone = posthouse("storage", "status", **place(database, objects)).stdout
    assert f"free scopes   {everything}" in gone and "lease of" not in gone


def test_migrate_says_what_it_did(database: str) -> None:
    assert "applied version 1" in posthouse("storage", "migrate", "--database", database).stderr
    assert "nothing to do: the tables have version 1" in (
        posthouse("storage", "migrate", "--database", database).stderr
    )
    again = posthouse("storage", "migrate", "--json", "--database", database)
    assert json.loads(again.stdout) == {"applied": [], "version": 1}


def test_a_newer_version_of_the_tables_is_refused(database: str) -> None:
    posthouse("storage", "migrate", "--database", database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("INSERT INTO posthouse.schema_version (version, compatible_from) VALUES (99, 99)")
    for command in ("migrate", "status"):
        done = posthouse("storage", command, "--database", database)
        assert done.returncode == 1
        assert "has version 99" in done.stderr


def test_verify_of_an_empty_storage(database: str, objects: str) -> None:
    missing = posthouse("storage", "verify", **place(database, objects))
    assert missing.returncode == 2
    assert "posthouse storage migrate" in missing.stderr
    posthouse("storage", "init", **place(database, objects))
    done = posthouse("storage", "verify", **place(database, objects))
    assert done.returncode == 0
    assert "no damage was found; looked at 0 logs" in done.stderr
    found = json.loads(posthouse("storage", "verify", "--json", **place(database, objects)).stdout)
    assert found["event"] == "done" and not found["damaged"]


def test_accepting_a_loss_is_asked_for_and_counted(database: str, objects: str) -> None:
    posthouse("storage", "init", **place(database, objects))
    unasked = posthouse("storage", "accept-loss", stdin="n\n", **place(database, objects))
    assert unasked.returncode == 1
    done = posthouse("storage", "accept-loss", "--yes", **place(database, objects))
    assert done.returncode == 0, done.stderr
    found = json.loads(posthouse("storage", "status", "--json", **place(database, objects)).stdout)
    assert found["confirmed_losses"] == 1


def test_addresses_come_from_a_file_too(database: str, objects: str, tmp_path: Path) -> None:
    file = tmp_path / "posthouse.toml"
    file.write_text(f'database = "{database}"\nobjects = "{objects}"\n')
    assert posthouse("storage", "init", "--config", file).returncode == 0
    assert posthouse("storage", "status", POSTHOUSE_CONFIG=str(file)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("status",), "name the database"),
        (("init", "--database", f"postgresql://u:{SECRET}@127.0.0.1:1/x"), "name the object store"),
        (("status", "--database", f"postgresql://u:{SECRET}@127.0.0.1:1/x"), "cannot be reached"),
        (("status", "--database", f"mysql://u:{SECRET}@127.0.0.1/x"), "postgresql://"),
    ],
)
def test_mistakes_are_sentences_without_the_password(arguments: tuple[str, ...], sentence: str) -> None:
    done = posthouse("storage", *arguments)
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert SECRET not in done.stderr and "Traceback" not in done.stderr


def test_a_role_that_does_not_exist(database: str, objects: str) -> None:
    done = posthouse("storage", "init", "--role", "absent", **place(database, objects))
    assert done.returncode == 1
    assert "no role absent" in done.stderr


def test_import_and_export(database: str, objects: str, tmp_path: Path) -> None:
    with ThreadBroker(data=tmp_path / "data") as broker:
        sent = posthouse("produce", "orders", stdin="one\ntwo\nthree\n", bootstrap=broker.kafka)
        assert sent.returncode == 0, sent.stderr
    early = posthouse("storage", "import", tmp_path / "data", **place(database, objects))
    assert early.returncode == 2 and "posthouse storage migrate" in early.stderr
    posthouse("storage", "init", **place(database, objects))
    segment = next((tmp_path / "data").glob("topics/*/*.log"))
    content = segment.read_bytes()
    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    damaged = posthouse("storage", "import", tmp_path / "data", **place(database, objects))
    assert damaged.returncode == 1 and "posthouse log verify" in damaged.stderr
    shown = posthouse("storage", "status", **place(database, objects)).stdout
    assert "coordinator   held by an import, epoch 1; if it was interrupted, repeat it" in shown
    segment.write_bytes(content)
    done = posthouse("storage", "import", tmp_path / "data", **place(database, objects))
    assert done.returncode == 0, done.stderr
    assert "done: 1 topic, 4 logs" in done.stderr
    again = posthouse("storage", "import", tmp_path / "data", **place(database, objects))
    assert again.returncode == 1 and "this storage is not empty" in again.stderr
    found = json.loads(posthouse("storage", "verify", "--json", **place(database, objects)).stdout)
    assert (found["records"], found["damaged"]) == (3, False)

    back = posthouse("storage", "export", tmp_path / "back", "--json", **place(database, objects))
    assert json.loads(back.stdout)["topics"] == 1, back.stderr
    with ThreadBroker(data=tmp_path / "back") as broker:
        read = posthouse("consume", "orders", "--from-beginning", "--max", "3", bootstrap=broker.kafka)
    assert read.stdout.split() == ["one", "two", "three"]


def kill_when(command: list[str], variables: dict[str, str], is_time: Callable[[], bool]) -> None:
    """Start a command, and kill it once it has begun to work, unless it is faster."""
    started = subprocess.Popen([*PROGRAM, *command], env=environment(**variables), stderr=subprocess.DEVNULL)
    while started.poll() is None and not is_time():
        time.sleep(0.001)
    started.kill()
    started.wait()


@cluster_only
def test_killed_transfers_go_on(database: str, objects: str, tmp_path: Path) -> None:
    data, back = tmp_path / "data", tmp_path / "back"
    lines = "".join(f"{number} {'x' * 1000}\n" for number in range(30_000))
    with ThreadBroker(data=data) as broker:
        posthouse("produce", "orders", stdin=lines, bootstrap=broker.kafka)
    variables = place(database, objects)
    posthouse("storage", "init", **variables)
    copied = tmp_path / "objects"
    before = len(list(copied.rglob("*-*")))
    kill_when(["storage", "import", str(data)], variables, lambda: len(list(copied.rglob("*-*"))) > before)
    done = posthouse("storage", "import", data, **variables)
    assert done.returncode == 0 or "not empty" in done.stderr, done.stderr
    found = json.loads(posthouse("storage", "verify", "--json", **variables).stdout)
    assert (found["records"], found["damaged"]) == (30_000, False)

    progress = tmp_path / "back.export" / "export.jsonl"
    kill_when(["storage", "export", str(back)], variables, progress.exists)
    done = posthouse("storage", "export", back, **variables)
    assert done.returncode == 0 or "not empty" in done.stderr, done.stderr
    with ThreadBroker(data=back) as broker:
        read = posthouse("consume", "orders", "--from-beginning", "--max", "30000", bootstrap=broker.kafka)
    assert sorted(read.stdout.splitlines()) == sorted(lines.splitlines())
