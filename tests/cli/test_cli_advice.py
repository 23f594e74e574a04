"""What a sentence advises must help: permissions, TLS, values, variables, directories."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.environment import check_environment
from posthouse.model.errors import InvalidConfig
from posthouse.testing import ThreadBroker
from tests.certificates import Authority
from tests.cli.programs import inside, one_sentence, posthouse
from tests.tls_brokers import tls_broker

ROOT = Path(__file__).parent.parent.parent
ADMIN = "admin's own"
NO_PORTS = ("--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--admin", "127.0.0.1:0")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[ThreadBroker]:
    with tls_broker(authority, {"admin": ADMIN}) as running:
        yield running


def test_a_refusal_names_the_permission_that_is_missing(broker: ThreadBroker, tmp_path: Path) -> None:
    secrets = {}
    for name, password in (("admin", ADMIN), ("ann", "ann's own")):
        secrets[name] = tmp_path / name
        secrets[name].write_text(password)
        secrets[name].chmod(0o600)

    def run(user: str, *arguments: str | Path) -> str:
        login = ("--user", user, "--password-file", secrets[user])
        done = inside(*login, *arguments, bootstrap=broker.kafka)
        return one_sentence(done, 1) if done.returncode else ""

    for command in (
        ["user", "create", "ann", "--password-file", str(secrets["ann"])],
        ["topic", "create", "orders"],
        ["acl", "allow", "ann", "read,write", "topic", "orders"],
    ):
        assert run("admin", *command) == ""
    missing = {
        ("topic", "delete", "orders"): "delete",
        ("topic", "trim", "orders", "--everything"): "delete",
        ("topic", "alter", "orders", "--partitions", "9"): "alter",
        ("topic", "alter", "orders", "-c", "retention.ms=1"): "alter-configs",
        ("topic", "create", "another"): "create",
    }
    for words, permission in missing.items():
        topic = words[2]
        assert run("ann", *words) == (
            f"you may not do this to topic '{topic}'; ask an administrator for "
            f"'posthouse acl allow YOU {permission} topic {topic}'"
        )
    assert run("admin", "acl", "allow", "ann", "delete", "topic", "orders") == ""
    assert run("ann", "topic", "delete", "orders") == ""
    assert "'posthouse acl allow YOU describe-configs cluster'" in run("ann", "quota", "list")
    assert "'posthouse acl allow YOU delete group g'" in run("ann", "group", "delete", "g")


def test_without_tls_at_a_tls_port(broker: ThreadBroker) -> None:
    sentence = one_sentence(inside("topic", "list", bootstrap=broker.kafka_tls), 1)
    assert "TLS" in sentence and "--ca FILE" in sentence


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("retention.ms=abc", "retention.ms"),
        ("segment.bytes=1.5", "segment.bytes"),
    ],
)
def test_a_setting_of_a_topic_that_is_no_number(kafka: str, topic: str, setting: str, part: str) -> None:
    sentence = one_sentence(inside("topic", "create", topic, "-c", setting, bootstrap=kafka), 1)
    assert part in sentence and "whole number" in sentence and "literal" not in sentence


def test_a_setting_of_the_broker_that_is_no_number() -> None:
    sentence = one_sentence(inside("serve", "--memory", "--default-partitions", "many"), 2)
    assert sentence == "setting default_partitions: 'many' is no whole number"
    assert "'soon' is no number" in one_sentence(inside("serve", "--memory", "--shutdown-seconds", "soon"), 2)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("POSTHOUSE_BOOTSTARP", "POSTHOUSE_BOOTSTRAP"),
        ("POSTHOUSE_DEFAULT_PARTITION", "POSTHOUSE_DEFAULT_PARTITIONS"),
    ],
)
@pytest.mark.parametrize("command", [["topic", "list"], ["serve", "--memory", *NO_PORTS]], ids=" ".join)
def test_a_variable_that_is_misspelt(
    name: str, near: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "3")
    assert one_sentence(inside(*command), 2) == (
        f"the environment variable {name} means nothing to Posthouse; did you mean {near}? Correct or "
        "unset it"
    )


def test_a_variable_that_is_like_no_other() -> None:
    with pytest.raises(InvalidConfig, match="POSTHOUSE_XYZZY_42 means nothing to Posthouse; unset it"):
        check_environment({"POSTHOUSE_XYZZY_42": ""})


def test_variables_that_kubernetes_sets_for_a_service_called_posthouse() -> None:
    check_environment(
        {
            "POSTHOUSE_SERVICE_HOST": "10.0.0.1",
            "POSTHOUSE_SERVICE_PORT_KAFKA": "9092",
            "POSTHOUSE_PORT": "tcp://10.0.0.1:9092",
            "POSTHOUSE_PORT_9092_TCP_ADDR": "10.0.0.1",
            "POSTHOUSE_AMQP_SERVICE_PORT": "5672",
        }
    )
    with pytest.raises(InvalidConfig, match="POSTHOUSE_KAFKA_PORT means nothing"):
        check_environment({"POSTHOUSE_KAFKA_PORT": "9092"})


def test_every_variable_that_is_used_is_known() -> None:
    files = [*ROOT.glob("src/**/*.py"), ROOT / "Makefile", ROOT / "tests" / "surroundings.py"]
    found = set(re.findall(r"\bPOSTHOUSE_[A-Z_]*[A-Z]\b", "\n".join(file.read_text() for file in files)))
    assert len(found) > 10
    check_environment(dict.fromkeys(found - {"POSTHOUSE_COMPLETE"}, ""))


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place, reason in (
        ("/proc/x", "/proc takes no new directories"),
        ("/proc/x/y", "/proc takes no new directories"),
        (str(file), f"{file} is a file"),
    ):
        sentence = one_sentence(posthouse("serve", "--data", place, *NO_PORTS), 1)
        assert sentence == (
            f"the data directory {place} cannot be created ({reason}); choose another place with --data"
        )
