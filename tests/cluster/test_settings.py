"""Settings of a broker that shares its storage: what goes together, and what must not be shown."""

import subprocess
import sys
from pathlib import Path

import pytest

from posthouse.loaded_settings import load_settings
from posthouse.model.errors import InvalidConfig
from posthouse.service_url import ServiceUrl
from posthouse.settings import Address, Settings
from posthouse.storage.shared.database import Database

DATABASE = "postgresql://posthouse:verysecret@db.example:5432/broker?password=verysecret"


def shared(**flags: str) -> Settings:
    loaded = load_settings(
        environment={}, flags={"database": DATABASE, "objects": "file:///tmp/objects", **flags}
    )
    return loaded.settings


def test_the_password_is_not_shown() -> None:
    settings = shared()
    settings.check()
    assert settings.database is not None
    assert settings.database.url == DATABASE
    assert str(settings.database) == "postgresql://posthouse@db.example:5432/broker"
    assert "verysecret" not in repr(settings)


def test_node_ids() -> None:
    assert shared(node_id="7").node_id == 7
    shared(node_id="7").check()
    for wrong in ("0", "-1", "2147483648"):
        with pytest.raises(InvalidConfig, match="node_id must be from 1"):
            shared(node_id=wrong).check()
    with pytest.raises(InvalidConfig, match="node_id is for brokers that share a storage"):
        Settings(node_id=7).check()


_UNCLEAN = [
    "postgresql://bob:very#secret@db/x",
    "postgresql://bob:very?secret@db/x",
    "postgresql://bob:very/secret@db/x",
    "postgresql://bob:very@secret@db/x",
    "postgresql://bob:p@very/secret@db:5432/x",
    "postgresql://bob:1?very@db/x",
    "postgresql://bob:1/very@db/x",
    "postgresql://bob@db:verysecret/x",
]


@pytest.mark.parametrize("url", _UNCLEAN)
def test_no_part_of_a_password_with_special_characters_is_shown(url: str) -> None:
    assert str(ServiceUrl.database(url)) == "postgresql://…"


@pytest.mark.parametrize(
    "url", [*_UNCLEAN, "postgresql://bob:50%very@db/x", "postgresql://bob:very secret@db/x"]
)
def test_nor_by_the_database(url: str) -> None:
    try:
        shown = Database(url).name
    except InvalidConfig as error:
        shown = str(error)
    assert "very" not in shown
    assert "secret" not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://bob:a:b@db,[::1]:5433/x?sslmode=require", "postgresql://bob@db,[::1]:5433/x"),
        ("postgresql:///x?host=/run/postgresql", "postgresql:///x"),
        ("s3://bucket/a prefix?endpoint=http://127.0.0.1:9000", "s3://bucket/a prefix"),
        ("file:///var/lib/objects", "file:///var/lib/objects"),
    ],
)
def test_the_rest_of_a_clean_address_is_shown(url: str, shown: str) -> None:
    assert str(ServiceUrl(url)) == shown


def test_nor_in_the_sentence_about_a_wrong_one() -> None:
    with pytest.raises(InvalidConfig) as found:
        load_settings(environment={"POSTHOUSE_DATABASE": "mysql://me:verysecret@x/y"})
    assert "verysecret" not in str(found.value)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"database": DATABASE}, "database is set without objects"),
        ({"objects": "s3://bucket/prefix"}, "objects is set without database"),
        ({"database": DATABASE, "objects": "file:///x", "memory": True}, "memory and database"),
        (
            {
                "database": DATABASE,
                "objects": "file:///x",
                "kafka": "0.0.0.0:9092",
                "allow_open_network": True,
            },
            "set kafka_advertised",
        ),
        ({"database": DATABASE, "objects": "file:///x", "peer": "0.0.0.0:7000"}, "set peer_advertised"),
        ({"database": DATABASE, "objects": "file:///x", "peer": "127.0.0.1:9092"}, "peer and kafka"),
        ({"cache_bytes": -1}, "cache_bytes must not be below 0"),
    ],
)
def test_what_does_not_go_together(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        load_settings(environment={}, flags=flags).settings.check()


def test_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('database = "postgresql://db/a"\nobjects = "s3://bucket/p"\npeer = "10.0.0.1:7000"\n')
    settings = load_settings(file=file, environment={"POSTHOUSE_RACK": "east"}).settings
    settings.check()
    assert (str(settings.objects), settings.rack, settings.peer) == (
        "s3://bucket/p",
        "east",
        Address("10.0.0.1", 7000),
    )


def test_a_broker_that_is_alone_imports_none_of_it() -> None:
    code = (
        "import sys, posthouse.cli.main, posthouse.cli.serve;"
        "of = ('psycopg', 'obstore', 'posthouse.storage.shared.', 'posthouse.cluster.', 'posthouse.node');"
        "print([name for name in sys.modules if name.startswith(of)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
