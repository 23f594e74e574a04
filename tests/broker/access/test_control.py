"""Access as a whole: how it starts, what a restart remembers, and what is on disk."""

from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.guard import AclGuard, OpenGuard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.quotas import DEFAULT, Entity, Quota
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.model.errors import InvalidConfig, LoginFailed
from posthouse.settings import Authentication
from posthouse.testing import AsyncBroker

PEER = "127.0.0.1:1"
PASSWORD = "nobody-guesses-this"
ACL = Acl(kind=Kind.TOPIC, name="t", principal="User:ann", operation=Operation.READ)


def password_file(directory: Path, text: str = PASSWORD + "\n", mode: int = 0o600) -> Path:
    file = directory / "password"
    file.write_text(text)
    file.chmod(mode)
    return file


def broker(directory: Path, **settings: Any) -> AsyncBroker:
    return AsyncBroker(data=directory / "data", authentication=Authentication.REQUIRED, **settings)


async def test_a_restart_remembers(tmp_path: Path) -> None:
    async with broker(tmp_path, admin_password_file=password_file(tmp_path)) as running:
        access = running.app.broker.access
        for name in ("ann", "ben"):
            await access.users.set_password(name, f"{PASSWORD}-{name}", iterations=MIN_ITERATIONS)
        await access.users.delete("ben")
        await access.acls.add(
            [ACL, Acl(kind=Kind.GROUP, name="g", principal="User:x", operation=Operation.READ)]
        )
        await access.acls.remove(lambda acl: acl.name == "g")
        await access.quotas.change(Entity("ann", DEFAULT), {Quota.WRITTEN: 10.0, Quota.TIME: 50.0})
        await access.quotas.change(Entity(DEFAULT), {Quota.READ: 10.0})
        await access.quotas.change(Entity(DEFAULT), {Quota.READ: None})
    async with broker(tmp_path) as running:
        access = running.app.broker.access
        assert {user.name for user in access.users} == {"admin", "ann"}
        assert await access.log_in("admin", PASSWORD, PEER) == Principal("admin")
        assert await access.log_in("ann", f"{PASSWORD}-ann", PEER) == Principal("ann")
        with pytest.raises(LoginFailed):
            await access.log_in("ben", f"{PASSWORD}-ben", PEER)
        assert list(access.acls) == [ACL]
        assert list(access.quotas) == [(Entity("ann", DEFAULT), {Quota.WRITTEN: 10.0, Quota.TIME: 50.0})]
        assert access.quotas.take(Quota.WRITTEN, "ann", "tool", 20.0) == 1.0


async def test_no_password_is_on_disk(tmp_path: Path) -> None:
    async with broker(tmp_path, admin_password_file=password_file(tmp_path)) as running:
        await running.app.broker.access.log_in("admin", PASSWORD, PEER)
    files = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert PASSWORD.encode() not in file.read_bytes(), file


async def test_another_password_in_the_file_counts(tmp_path: Path) -> None:
    async with broker(tmp_path, admin_password_file=password_file(tmp_path)):
        pass
    async with broker(tmp_path, admin_password_file=password_file(tmp_path, "another")) as running:
        access = running.app.broker.access
        await access.log_in("admin", "another", PEER)
        with pytest.raises(LoginFailed):
            await access.log_in("admin", PASSWORD, PEER)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("pass", 0o644, "chmod 600"),
        ("pass", 0o640, "chmod 600"),
        ("", 0o600, "empty"),
        ("\n", 0o600, "empty"),
    ],
)
async def test_a_password_file_that_will_not_do(text: str, mode: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=why):
        async with broker(tmp_path, admin_password_file=password_file(tmp_path, text, mode)):
            pass


async def test_a_password_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        async with broker(tmp_path, admin_password_file=tmp_path / "missing"):
            pass


async def test_a_broker_that_nobody_could_enter_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no user who could log in"):
        async with broker(tmp_path):
            pass


async def test_who_is_guarded_how(tmp_path: Path) -> None:
    async with broker(
        tmp_path, admin_password_file=password_file(tmp_path), superusers=("admin", "root")
    ) as running:
        access = running.app.broker.access
        assert isinstance(access.guard(None, "127.0.0.1:1", "kafka"), OpenGuard)
        for name, may in (("admin", True), ("root", True), ("ann", False)):
            guard = access.guard(Principal(name), "127.0.0.1:1", "kafka")
            assert isinstance(guard, AclGuard)
            assert guard.may(Operation.DELETE, Kind.TOPIC, "t") is may
            assert guard.allows_some(Operation.WRITE, Kind.TOPIC) is may
