"""Users: who gets in with which password, and what is left of those who are gone."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.access import password_work, scram
from posthouse.broker.access.scram import MIN_ITERATIONS, verifier_of, verifier_of_salted
from posthouse.broker.access.users import Users
from posthouse.model.clock import ManualClock
from posthouse.model.errors import InvalidCredential, LoginFailed, UnknownUser
from posthouse.model.scram import Mechanism, salted_password
from posthouse.settings import Authentication
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.testing import AsyncBroker


@pytest.fixture
def changed() -> list[str]:
    """The users whose passwords were changed or removed."""
    return []


@pytest.fixture
async def users(changed: list[str]) -> AsyncIterator[Users]:
    made = Users(MemoryStorage(ManualClock()), changed=changed.append)
    yield made
    made.close()


async def make(users: Users, name: str = "ann", password: str = "pass", **fields: Mechanism) -> None:
    await users.set_password(name, password, iterations=MIN_ITERATIONS, **fields)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iterations of each time that a password is worked on."""
    costs: list[int] = []
    work = salted_password

    def counting(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
        costs.append(iterations)
        return work(mechanism, password, salt, iterations)

    monkeypatch.setattr(scram, "salted_password", counting)
    return costs


async def test_a_password(users: Users) -> None:
    await make(users)
    await users.check_password("ann", "pass")
    for name, password in (("ann", "Pass"), ("ann", ""), ("ann", "pass "), ("ben", "pass"), ("", "")):
        with pytest.raises(LoginFailed, match="a wrong user name or password"):
            await users.check_password(name, password)
    user = users.get("ann")
    assert user is not None
    assert user.verifiers.keys() == set(Mechanism)
    assert "pass" not in repr(user)


async def test_a_password_is_worked_on_once(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(users)
    costs = counted(monkeypatch)
    for _ in range(3):
        await users.check_password("ann", "pass")
    assert len(costs) == len(Mechanism)
    for _ in range(3):
        with pytest.raises(LoginFailed):
            await users.check_password("ann", "wrong")
    assert len(costs) == 4 * len(Mechanism)


async def test_guessing_a_name_takes_as_long_as_guessing_a_password(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    await users.set_password("ann", "pass")
    costs = counted(monkeypatch)
    for name in ("ann", "nobody"):
        with pytest.raises(LoginFailed):
            await users.check_password(name, "wrong")
    assert len(costs) == 2 * len(Mechanism)
    assert len(set(costs)) == 1


async def test_those_who_do_not_exist_look_like_those_who_do(users: Users) -> None:
    await users.set_password("ann", "pass")
    for mechanism in Mechanism:
        real, made_up = users.verifier("ann", mechanism), users.verifier("nobody", mechanism)
        assert (len(made_up.salt), made_up.iterations) == (len(real.salt), real.iterations)
        assert users.verifier("nobody", mechanism) == made_up
        assert users.verifier("somebody", mechanism).salt != made_up.salt


async def test_those_who_do_not_exist_look_like_any_of_those_who_do(users: Users) -> None:
    """Programs of others make other salts, and fewer iterations."""
    await users.set_password("ann", "pass")
    salted = bytes(32)
    await users.replace("ben", [verifier_of_salted(Mechanism.SHA_256, salted, bytes(64), 4096)])
    names = [f"nobody-{number}" for number in range(100)]

    def shapes() -> list[tuple[int, int]]:
        made_up = [users.verifier(name, Mechanism.SHA_256) for name in names]
        return [(each.iterations, len(each.salt)) for each in made_up]

    seen = shapes()
    assert set(seen) == {(4096, 64), (16_384, 24)}
    assert min(seen.count(each) for each in set(seen)) > 20
    assert shapes() == seen
    assert len({users.verifier(name, Mechanism.SHA_256).salt for name in names}) == len(names)
    await users.delete("ben")
    assert set(shapes()) == {(16_384, 24)}


async def test_a_restart_does_not_tell_who_exists(tmp_path: Path) -> None:
    salts = []
    for _ in range(2):
        file = tmp_path / "password"
        file.write_text("secret")
        file.chmod(0o600)
        async with AsyncBroker(
            data=tmp_path / "data", authentication=Authentication.REQUIRED, admin_password_file=file
        ) as broker:
            salts.append(broker.app.broker.access.users.verifier("nobody", Mechanism.SHA_256).salt)
    assert salts[0] == salts[1]


async def test_an_old_password_is_forgotten_at_once(users: Users, changed: list[str]) -> None:
    await make(users, password="old")
    await users.check_password("ann", "old")
    await make(users, password="new")
    with pytest.raises(LoginFailed):
        await users.check_password("ann", "old")
    await users.check_password("ann", "new")
    await users.delete("ann")
    with pytest.raises(LoginFailed):
        await users.check_password("ann", "new")
    with pytest.raises(UnknownUser):
        await users.delete("ann")
    assert changed == ["ann"] * 3


async def test_a_login_that_is_overtaken_by_a_change(users: Users) -> None:
    await make(users)
    logging_in = asyncio.create_task(users.check_password("ann", "pass"))
    await asyncio.sleep(0)
    await users.replace("ann", (), tuple(Mechanism))
    with pytest.raises(LoginFailed):
        await logging_in


async def test_two_changes_at_once_are_both_there(users: Users) -> None:
    made = [verifier_of(mechanism, "pass", iterations=MIN_ITERATIONS) for mechanism in Mechanism]
    await asyncio.gather(*(users.replace("ann", [each]) for each in made))
    user = users.get("ann")
    assert user is not None
    assert user.verifiers.keys() == set(Mechanism)


async def test_one_mechanism(users: Users) -> None:
    await make(users, only=Mechanism.SHA_512)
    await users.check_password("ann", "pass")
    await users.replace("ann", (), [Mechanism.SHA_512])
    assert users.get("ann") is None
    assert not len(users)


async def test_too_many_logins_at_once(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_work, "_MOST_WAITING", 2)
    await make(users)
    go_on = threading.Event()
    work = salted_password
    monkeypatch.setattr(scram, "salted_password", lambda *given: go_on.wait() and work(*given))
    logins = [asyncio.create_task(users.check_password("ann", "pass")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LoginFailed, match="too many logins"):
        await users.check_password("ann", "pass")
    go_on.set()
    await asyncio.gather(*logins)
    await users.check_password("ann", "pass")


@pytest.mark.parametrize("name", ["", "*", "a\nb", "\x00", "a" * 256, "ü" * 128])
async def test_names_that_nobody_has(name: str, users: Users) -> None:
    with pytest.raises(InvalidCredential):
        await make(users, name)
    assert not len(users)


@pytest.mark.parametrize("password", ["", "x" * 1025])
async def test_passwords_that_nobody_has(password: str, users: Users) -> None:
    with pytest.raises(InvalidCredential):
        await make(users, password=password)
    with pytest.raises(LoginFailed):
        await users.check_password("ann", password)


@pytest.mark.parametrize("iterations", [0, 4095, 100_001, 10**9])
async def test_a_password_must_not_cost_too_much_or_too_little(iterations: int, users: Users) -> None:
    with pytest.raises(InvalidCredential):
        await users.set_password("ann", "pass", iterations=iterations)


async def test_a_password_of_either_mechanism_is_one(users: Users) -> None:
    await users.set_password("alice", "old", iterations=MIN_ITERATIONS)
    await users.set_password("alice", "new", iterations=MIN_ITERATIONS, only=Mechanism.SHA_512)
    await users.check_password("alice", "old")
    await users.check_password("alice", "new")
    with pytest.raises(LoginFailed):
        await users.check_password("alice", "other")
