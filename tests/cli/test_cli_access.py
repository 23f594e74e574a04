"""Users, permissions and quotas by the program, on a broker that wants everybody to log in."""

import json
import os
import pty
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from posthouse.cli.sizes import parse_percentage, parse_size, shown_size
from posthouse.testing import ThreadBroker
from tests.certificates import Authority
from tests.cli.programs import PROGRAM, environment, inside, one_sentence, posthouse
from tests.tls_brokers import tls_broker

ADMIN = "admin's own"

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[ThreadBroker]:
    with tls_broker(authority, {"admin": ADMIN}) as running:
        yield running


def secret(directory: Path, name: str, password: str) -> Path:
    file = directory / f"{name}.password"
    file.write_text(password + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def run(broker: ThreadBroker, authority: Authority, tmp_path: Path) -> Run:
    """The program, called by the administrator over TLS."""
    file = secret(tmp_path, "admin", ADMIN)

    def call(*arguments: str | Path) -> CompletedProcess[str]:
        login = ("--ca", authority.file, "--user", "admin", "--password-file", file)
        return inside(*login, *arguments, bootstrap=broker.kafka_tls)

    return call


def said(done: CompletedProcess[str]) -> str:
    assert done.returncode == 0, done
    assert done.stdout == ""
    return done.stderr.rstrip("\n")


def parsed(done: CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def rows(done: CompletedProcess[str]) -> list[list[str]]:
    assert done.returncode == 0, done
    return [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]


def test_a_user_lives_and_dies(run: Run, broker: ThreadBroker, tmp_path: Path) -> None:
    first, second = secret(tmp_path, "first", "first one"), secret(tmp_path, "second", "second one")
    assert said(run("user", "create", "ann", "--password-file", first)) == (
        "created user 'ann'; say what it may do with 'posthouse acl allow ann …'"
    )
    assert ["ann", "SCRAM-SHA-256, SCRAM-SHA-512", "16384"] in rows(run("user", "list"))
    both = {"SCRAM-SHA-256": 16384, "SCRAM-SHA-512": 16384}
    assert {"user": "ann", "iterations": both} in parsed(run("user", "list", "--json"))

    def may_log_in(password_file: Path, mechanism: str) -> bool:
        login = ("--user", "ann", "--password-file", password_file, "--mechanism", mechanism)
        done = inside(*login, "topic", "list", bootstrap=broker.kafka)
        if done.returncode:
            assert one_sentence(done, 1).endswith("refused the login: a wrong user name or password")
        return done.returncode == 0

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        assert may_log_in(first, mechanism) and not may_log_in(second, mechanism)
    refused = run("user", "create", "ann", "--password-file", second)
    assert "'ann' exists already; change the password with 'posthouse user passwd ann'" in one_sentence(
        refused, 1
    )
    changed = run("user", "passwd", "ann", "--password-file", second, "--iterations", "8192")
    assert said(changed) == "user 'ann' has another password now"
    assert may_log_in(second, "SCRAM-SHA-256") and not may_log_in(first, "SCRAM-SHA-256")
    assert "deleted user 'ann'" in said(run("user", "delete", "ann"))
    assert not may_log_in(second, "SCRAM-SHA-256")
    for command in (["delete", "ann"], ["passwd", "ann", "--password-file", str(first)]):
        assert "there is no user 'ann'; see 'posthouse user list'" in one_sentence(run("user", *command), 1)


def test_users_in_json(run: Run, tmp_path: Path) -> None:
    file = secret(tmp_path, "bea", "bea's own")
    assert parsed(run("user", "create", "bea", "--password-file", file, "--json")) == {
        "user": "bea",
        "created": True,
    }
    assert parsed(run("user", "passwd", "bea", "--password-file", file, "--json"))["changed"] is True
    assert parsed(run("user", "delete", "bea", "--json")) == {"user": "bea", "deleted": True}


def test_what_cannot_be_a_password_or_a_user(run: Run, tmp_path: Path) -> None:
    file = secret(tmp_path, "new", "x")
    too_few = run("user", "create", "cid", "--password-file", file, "--iterations", "4095")
    assert "'--iterations'" in one_sentence(too_few, 2)
    assert "there is no password in" in one_sentence(
        run("user", "create", "cid", "--password-file", secret(tmp_path, "empty", "")), 2
    )
    assert one_sentence(run("user", "create", "*", "--password-file", file), 1)


def test_a_password_from_standard_input(broker: ThreadBroker, run: Run) -> None:
    done = posthouse(
        "user",
        "create",
        "dan",
        stdin="dan's own\n",
        bootstrap=broker.kafka,
        POSTHOUSE_USER="admin",
        POSTHOUSE_PASSWORD=ADMIN,
    )
    assert done.returncode == 0, done
    login = {"POSTHOUSE_USER": "dan", "POSTHOUSE_PASSWORD": "dan's own"}
    assert posthouse("topic", "list", bootstrap=broker.kafka, **login).returncode == 0
    nothing = posthouse(
        "user", "passwd", "dan", bootstrap=broker.kafka, **(login | {"POSTHOUSE_USER": "dan"})
    )
    assert nothing.returncode != 0
    said(run("user", "delete", "dan"))


class Typist:
    """Somebody at a terminal."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self._process, self._terminal = pty.fork()
        if self._process == 0:
            os.execve(PROGRAM[0], [*PROGRAM, *arguments], environment(**more))
        self.seen = b""

    def wait_for(self, text: bytes) -> None:
        start = len(self.seen)
        while text not in self.seen[start:]:
            self.seen += os.read(self._terminal, 1024)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode() + b"\n")

    def end(self) -> int:
        try:
            while data := os.read(self._terminal, 1024):
                self.seen += data
        except OSError:
            pass  # how Linux tells that nobody has the terminal open any more
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])


@pytest.mark.parametrize("again", ["eve's own", "eve's won"])
def test_a_password_that_is_typed_is_not_shown(broker: ThreadBroker, run: Run, again: str) -> None:
    typist = Typist("--user", "admin", "user", "create", "eve", POSTHOUSE_BOOTSTRAP=broker.kafka)
    typist.wait_for(b"Password of admin: ")
    typist.type(ADMIN)
    typist.wait_for(b"New password of eve: ")
    typist.type("eve's own")
    typist.wait_for(b"The same again: ")
    typist.type(again)
    status = typist.end()
    assert b"own" not in typist.seen and b"won" not in typist.seen
    if again == "eve's own":
        assert status == 0
        said(run("user", "delete", "eve"))
    else:
        assert status == 2 and b"the two passwords differ; nothing was changed" in typist.seen


def test_permissions_read_like_sentences(run: Run) -> None:
    assert said(run("acl", "allow", "fay", "read,write", "topic", "orders")) == (
        "fay may read topic 'orders'; fay may write topic 'orders'"
    )
    assert said(run("acl", "allow", "fay", "read", "group", "bill", "--prefix", "--host", "10.0.0.7")) == (
        "fay may read every group whose name begins with 'bill' from 10.0.0.7"
    )
    assert said(run("acl", "deny", "*", "delete", "topic", "*")) == "everybody may not delete every topic"
    assert said(run("acl", "allow", "User:fay", "describe", "cluster")) == "fay may describe the cluster"
    listed = rows(run("acl", "list", "--user", "fay"))
    assert listed == [
        ["user", "may", "operation", "kind", "name", "host"],
        ["fay", "yes", "read", "topic", "orders", "*"],
        ["fay", "yes", "read", "group", "bill…", "10.0.0.7"],
        ["fay", "yes", "write", "topic", "orders", "*"],
        ["fay", "yes", "describe", "cluster", "kafka-cluster", "*"],
    ]
    bearing = rows(run("acl", "list", "--topic", "orders"))
    assert ["*", "no", "delete", "topic", "*", "*"] in bearing and len(bearing) == 4
    assert len(rows(run("acl", "list", "--group", "billing"))) == 2
    [denied] = parsed(run("acl", "list", "--user", "*", "--json"))
    assert denied == {
        "user": "*",
        "allow": False,
        "operation": "delete",
        "kind": "topic",
        "name": "*",
        "prefix": False,
        "host": "*",
    }
    removed = run("acl", "remove", "fay", "write", "topic", "orders")
    assert rows(removed)[1:] == [["fay", "yes", "write", "topic", "orders", "*"]]
    assert removed.stderr == "removed 1 permission\n"
    literal = run("acl", "remove", "fay", "any", "group", "bill")
    assert one_sentence(literal, 1).startswith("there is no such permission")
    assert len(parsed(run("acl", "remove", "fay", "any", "group", "bill", "--prefix", "--json"))) == 1
    assert len(parsed(run("acl", "remove", "fay", "--json"))) == 2
    assert len(parsed(run("acl", "remove", "*", "--json"))) == 1
    assert said(run("acl", "list")) == "there are no such permissions; give some with 'posthouse acl allow'"


def test_permissions_count_at_once(run: Run, broker: ThreadBroker, tmp_path: Path) -> None:
    file = secret(tmp_path, "gil", "gil's own")
    said(run("user", "create", "gil", "--password-file", file))
    said(run("topic", "create", "gilded"))
    (tmp_path / "lines").write_text("hello\n")
    assert run("produce", "gilded", "--file", tmp_path / "lines").returncode == 0

    def as_gil(*arguments: str) -> CompletedProcess[str]:
        return inside("--user", "gil", "--password-file", file, *arguments, bootstrap=broker.kafka)

    assert one_sentence(as_gil("topic", "describe", "gilded"), 1) == (
        "you may not do this to topic 'gilded'; ask an administrator for "
        "'posthouse acl allow YOU read,write topic gilded', or what of it you need"
    )
    assert "acl allow YOU alter,describe cluster" in one_sentence(as_gil("user", "list"), 1)
    assert "acl allow YOU" in one_sentence(as_gil("acl", "list"), 1)
    assert "acl allow YOU" in one_sentence(as_gil("quota", "list"), 1)
    assert json.loads(as_gil("topic", "list", "--json").stdout) == []
    said(run("acl", "allow", "gil", "read", "topic", "gilded"))
    assert [each["topic"] for each in json.loads(as_gil("topic", "list", "--json").stdout)] == ["gilded"]
    assert as_gil("consume", "gilded", "--from-beginning").returncode == 0
    said(run("acl", "deny", "gil", "read", "topic", "gil", "--prefix"))
    assert "you may not" in one_sentence(as_gil("consume", "gilded", "--from-beginning"), 1)


def test_access_keys(run: Run, broker: ThreadBroker, tmp_path: Path) -> None:
    address = ("--admin", f"http://{broker.admin}")
    said(run("user", "create", "kim", "--password-file", secret(tmp_path, "kim", "kim's own")))
    assert said(run("user", "access-key", "list", "kim", *address)) == (
        "user 'kim' has no access keys; add one with 'posthouse user access-key add kim'"
    )
    made = run("user", "access-key", "add", "kim", *address)
    assert made.returncode == 0 and "its secret is not shown again" in made.stderr
    [[_, _], [key, hidden]] = rows(made)
    given = ("--key", "RocketMQ", "--secret-file", secret(tmp_path, "old", "12345678"))
    assert parsed(run("user", "access-key", "add", "kim", *given, "--json", *address)) == {
        "user": "kim",
        "access_key": "RocketMQ",
        "secret": "12345678",
    }
    listed = run("user", "access-key", "list", "kim", *address)
    assert {row[0] for row in rows(listed)[1:]} == {key, "RocketMQ"}
    assert hidden not in listed.stdout and "12345678" not in listed.stdout
    found = parsed(run("user", "access-key", "list", "kim", "--json", *address))
    assert [each.keys() for each in found] == [{"access_key", "created"}] * 2
    removed = said(run("user", "access-key", "remove", "kim", key, *address))
    assert removed == f"removed the access key {key} of user 'kim'"
    again = one_sentence(run("user", "access-key", "remove", "kim", key, *address), 1)
    assert f"'kim' has no access key '{key}'" in again
    assert "there is no user 'lee'" in one_sentence(run("user", "access-key", "add", "lee", *address), 1)
    short = ("--secret-file", secret(tmp_path, "short", "seven77"))
    assert "secret" in one_sentence(run("user", "access-key", "add", "kim", *short, *address), 1)
    twice = one_sentence(run("user", "access-key", "add", "kim", "--key", "RocketMQ", *address), 1)
    assert "there is an access key 'RocketMQ' already" in twice


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (
            ["acl", "allow", "a", "reed", "topic", "t"],
            "'reed' is not an operation; use all, read",
        ),
        (["acl", "allow", "a", "read", "queue", "q"], "'queue' is not a kind of resource; use topic"),
        (["acl", "allow", "a", "read", "topic"], "the name of the topic is missing; give it, or '*' for all"),
        (["acl", "allow", "a", "alter", "cluster", "this"], "there is one cluster, which needs no name"),
        (["acl", "remove", "a", "any", "topic", "--prefix"], "--prefix needs NAME"),
        (["acl", "list", "--topic", "a", "--group", "b"], "give one of them"),
        (["quota", "set", "--write-rate", "1MB"], "whose quota is missing"),
        (["quota", "set", "--user", "a"], "nothing to set was given"),
        (["quota", "set", "--user", "a", "--default-user", "--time", "5%"], "give one of them"),
        (
            ["quota", "set", "--user", "a", "--write-rate", "much"],
            "'much' is no amount; write for example 10MB",
        ),
        (["quota", "set", "--user", "a", "--time", "half"], "'half' is no share; write for example 50%"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_is_one_sentence(run: Run, arguments: list[str], part: str) -> None:
    assert part in one_sentence(run(*arguments), 2)


def test_an_operation_that_the_broker_does_not_know_of_a_kind(run: Run) -> None:
    assert "no operation" in one_sentence(run("acl", "allow", "a", "write", "group", "g"), 1)


def test_quotas(run: Run) -> None:
    assert said(run("quota", "list")) == "there are no quotas; set one with 'posthouse quota set'"
    limits = ("--write-rate", "10MB", "--read-rate", "512KiB", "--time", "50%")
    assert said(run("quota", "set", "--user", "hal", *limits)) == "set the quota of user 'hal'"
    said(run("quota", "set", "--default-user", "--client", "batch", "--time", "5"))
    assert said(run("quota", "set", "--default-client", "--read-rate", "1.5MB")) == (
        "set the quota of every client without a quota of its own"
    )
    assert sorted(rows(run("quota", "list"))[1:]) == [
        ["(each)", "batch", "-", "-", "5%"],
        ["-", "(each)", "-", "1500KB/s", "-"],
        ["hal", "-", "10MB/s", "512KiB/s", "50%"],
    ]
    left = parsed(run("quota", "remove", "--user", "hal", "--time", "--json"))
    assert (left["write_rate"], left["read_rate"], left["time"]) == (10e6, 524288, None)
    said(run("quota", "remove", "--user", "hal"))
    said(run("quota", "remove", "--default-client"))
    [rest] = parsed(run("quota", "list", "--json"))
    assert rest["default_user"] and rest["client"] == "batch"
    said(run("quota", "remove", "--default-user", "--client", "batch"))
    assert parsed(run("quota", "list", "--json")) == []


def test_sizes() -> None:
    assert parse_size("1000") == 1000
    assert parse_size(" 1.5 kib ") == 1536
    assert parse_size("10MB/s") == 10e6
    assert parse_percentage("12.5 %") == 12.5
    assert [shown_size(size) for size in (10e6, 2**20, 1500, 7, 3e9)] == [
        "10MB",
        "1MiB",
        "1500B",
        "7B",
        "3GB",
    ]
    for text in ("", "MB", "-1", "5XB"):
        with pytest.raises(ValueError, match="is no amount"):
            parse_size(text)


def test_a_password_is_no_option(broker: ThreadBroker) -> None:
    done = inside("--user", "admin", "--password", ADMIN, "topic", "list", bootstrap=broker.kafka)
    assert "--password" in one_sentence(done, 2)


def test_logins_that_make_no_sense(broker: ThreadBroker, tmp_path: Path) -> None:
    without = inside("--user", "admin", "topic", "list", bootstrap=broker.kafka)
    assert "the password of 'admin' is missing; name a file" in one_sentence(without, 2)
    file = secret(tmp_path, "open", ADMIN)
    file.chmod(0o644)
    login = ("--user", "admin", "--password-file", file)
    assert f"chmod 600 {file}" in one_sentence(inside(*login, "topic", "list", bootstrap=broker.kafka), 2)
    missing = inside("--ca", tmp_path / "no.pem", "topic", "list", bootstrap=broker.kafka_tls)
    assert "no.pem cannot be read" in one_sentence(missing, 2)
    nobody = one_sentence(inside("topic", "list", bootstrap=broker.kafka), 1)
    assert "give --user if it requires a login" in nobody
