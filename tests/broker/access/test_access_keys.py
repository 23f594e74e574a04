"""Access keys: whose they are, what they sign, and what is left of those who are gone."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from posthouse.broker.access.access_keys import LONGEST_KEY, MOST_OF_USER, AccessKeys
from posthouse.broker.access.control import AccessControl
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    AccessKeyExists,
    InvalidCredential,
    LoginFailed,
    StorageFull,
    UnknownAccessKey,
    UnknownUser,
)
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.spaces import Space
from posthouse.testing import AsyncBroker

SECRET = "a secret of ann"


@dataclass
class Scene:
    storage: MemoryStorage
    clock: ManualClock
    access: AccessControl = field(init=False)

    def __post_init__(self) -> None:
        self.access = AccessControl(self.storage, Settings(memory=True, audit=None), self.clock)

    @property
    def keys(self) -> AccessKeys:
        return self.access.access_keys

    async def user(self, name: str) -> None:
        await self.access.users.set_password(name, "password", iterations=MIN_ITERATIONS)

    def stored(self) -> dict[bytes, bytes]:
        return dict(self.storage._state.get(Space.ACCESS_KEYS, {}))

    def logs_in(self, name: str, secret: str = SECRET) -> str | None:
        """The user, if the signature is accepted."""
        try:
            return self.keys.verify(name, [b"a message"], signature(secret)).user
        except LoginFailed:
            return None


def signature(secret: str, message: bytes = b"a message") -> bytes:
    return hmac.digest(secret.encode(), message, "sha1")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = ManualClock()
    made = Scene(MemoryStorage(clock), clock)
    await made.user("ann")
    yield made
    made.access.users.close()


async def test_a_signature(scene: Scene) -> None:
    made = await scene.keys.add("ann", "key", secret=SECRET)
    assert (made.user, made.secret, made.created_ms) == ("ann", SECRET, scene.clock.now_ms())
    assert SECRET not in repr(made)
    assert scene.logs_in("key") == "ann"
    for name, wrong in (("key", "another"), ("Key", SECRET), ("", SECRET), ("ann", SECRET)):
        assert scene.logs_in(name, wrong) is None
    for bad in (
        b"",
        signature(SECRET)[:-1],
        signature(SECRET) + b"\0",
        signature(SECRET, b"another message"),
    ):
        with pytest.raises(LoginFailed, match="a wrong access key or signature"):
            scene.keys.verify("key", [b"a message"], bad)


async def test_a_published_signature(scene: Scene) -> None:
    """RFC 2202, case 2. No key can be added whose secret is that short, but one that is stored is used."""
    scene.keys.follow({b"key": b'{"user": "ann", "secret": "Jefe", "created": 0}'})
    digest = bytes.fromhex("effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")
    assert scene.keys.verify("key", [b"what do ya want for nothing?"], digest).user == "ann"


async def test_one_of_several_messages(scene: Scene) -> None:
    await scene.keys.add("ann", "key", secret=SECRET)
    assert scene.keys.verify("key", [b"b", b"a message"], signature(SECRET)).name == "key"
    with pytest.raises(LoginFailed):
        scene.keys.verify("key", [], signature(SECRET))


async def test_what_is_made(scene: Scene) -> None:
    one = await scene.keys.add("ann", scene.keys.new_name())
    other = await scene.keys.add("ann", scene.keys.new_name())
    assert one.name != other.name and one.secret != other.secret
    assert len(one.name) == 16 and len(one.secret) == 48
    assert scene.logs_in(one.name, one.secret) == "ann"
    assert scene.logs_in(one.name, other.secret) is None


async def test_keys_of_several_users(scene: Scene) -> None:
    await scene.user("ben")
    await scene.keys.add("ann", "b", secret=SECRET)
    scene.clock.advance(1)
    await scene.keys.add("ann", "a", secret=SECRET)
    await scene.keys.add("ben", "c", secret="another secret")
    assert [each.name for each in scene.keys.of("ann")] == ["b", "a"]
    assert (scene.logs_in("a"), scene.logs_in("c", "another secret")) == ("ann", "ben")
    with pytest.raises(AccessKeyExists, match="there is an access key 'a' already"):
        await scene.keys.add("ben", "a")
    with pytest.raises(UnknownAccessKey, match="'ben' has no access key 'a'"):
        await scene.keys.remove("ben", "a")
    assert scene.logs_in("a") == "ann"


async def test_a_key_is_removed(scene: Scene) -> None:
    left: list[str] = []
    await scene.keys.add("ann", "key", secret=SECRET)
    await scene.keys.add("ann", "other", secret=SECRET)
    for name in ("key", "other"):
        scene.access.key_sessions.enter(name, partial(left.append, name))
    await scene.keys.remove("ann", "key")
    assert left == ["key"]
    assert (scene.logs_in("key"), scene.logs_in("other")) == (None, "ann")
    assert scene.stored().keys() == {b"other"}


async def test_a_user_is_deleted_with_all_keys(scene: Scene) -> None:
    """Otherwise a user who is created later under this name would have them."""
    await scene.user("ben")
    await scene.keys.add("ann", "one", secret=SECRET)
    await scene.keys.add("ann", "two", secret=SECRET)
    await scene.keys.add("ben", "three", secret=SECRET)
    await scene.access.users.delete("ann")
    assert scene.stored().keys() == {b"three"}
    assert [scene.logs_in(each) for each in ("one", "two", "three")] == [None, None, "ben"]
    await scene.user("ann")
    assert scene.logs_in("one") is None
    assert scene.keys.of("ann") == []


async def test_a_key_that_is_added_while_its_user_is_deleted(scene: Scene) -> None:
    deleting = asyncio.create_task(scene.access.users.delete("ann"))
    adding = asyncio.create_task(scene.keys.add("ann", "key", secret=SECRET))
    await deleting
    with pytest.raises(UnknownUser, match="there is no user 'ann'"):
        await adding
    assert scene.stored() == {}


async def test_a_change_that_cannot_be_stored(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.keys.add("ann", "key", secret=SECRET)

    async def full(operations: object) -> None:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(scene.storage, "commit", full)
    with pytest.raises(StorageFull):
        await scene.keys.add("ann", "other", secret=SECRET)
    with pytest.raises(StorageFull):
        await scene.keys.remove("ann", "key")
    with pytest.raises(StorageFull):
        await scene.access.users.delete("ann")
    assert (scene.logs_in("key"), scene.logs_in("other")) == ("ann", None)


@pytest.mark.parametrize(
    "name", ["", "k" * (LONGEST_KEY + 1), "a b", "a/b", "a,b", "a=b", "ä", "a\n", "\x7f"]
)
async def test_keys_that_cannot_be(scene: Scene, name: str) -> None:
    with pytest.raises(InvalidCredential, match="an access key has"):
        await scene.keys.add("ann", name)


@pytest.mark.parametrize("secret", ["", "seven77", "s" * 1025, "with a line\n break"])
async def test_secrets_that_cannot_be(scene: Scene, secret: str) -> None:
    with pytest.raises(InvalidCredential, match="a secret has from 8 to 1024 characters") as caught:
        await scene.keys.add("ann", "key", secret=secret)
    assert not secret or secret not in str(caught.value)


async def test_how_many_a_user_may_have(scene: Scene) -> None:
    for number in range(MOST_OF_USER):
        await scene.keys.add("ann", f"key-{number}")
    with pytest.raises(InvalidCredential, match="'ann' has 10 access keys already"):
        await scene.keys.add("ann", "one-more")
    await scene.keys.remove("ann", "key-0")
    await scene.keys.add("ann", "one-more")


async def test_changes_of_another_broker(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    left: list[str] = []
    for name in ("kept", "changed", "removed", "damaged"):
        await scene.keys.add("ann", name, secret=SECRET)
        scene.access.key_sessions.enter(name, partial(left.append, name))
    state = scene.stored()
    del state[b"removed"]
    state[b"changed"] = state[b"changed"].replace(SECRET.encode(), b"another secret")
    state[b"damaged"] = b'{"user": "ann", "secret": "leaked-secret"}'
    state[b"new"] = state[b"kept"]
    scene.keys.follow(state)
    assert sorted(left) == ["changed", "damaged", "removed"]
    found = [scene.logs_in(each) for each in ("kept", "changed", "removed", "damaged", "new")]
    assert found == ["ann", None, None, None, "ann"]
    assert scene.logs_in("changed", "another secret") == "ann"
    assert "access_keys" in caplog.text and "leaked-secret" not in caplog.text


async def test_keys_of_a_user_who_is_not_known_yet(scene: Scene) -> None:
    """A broker that follows may learn of the key first."""
    await scene.keys.add("ann", "key", secret=SECRET)
    users = dict(scene.storage._state[Space.USERS])
    scene.access.users.follow({})
    assert scene.logs_in("key") is None
    scene.access.users.follow(users)
    assert scene.logs_in("key") == "ann"


async def test_a_restart_of_a_broker(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path, users={"admin": "password"}) as broker:
        await broker.app.broker.access.access_keys.add("admin", "key", secret=SECRET)
    assert SECRET not in (tmp_path / "audit.log").read_text()
    async with AsyncBroker(data=tmp_path, users={"admin": "password"}) as broker:
        found = broker.app.broker.access.access_keys.verify("key", [b"a message"], signature(SECRET))
        assert found.user == "admin"
