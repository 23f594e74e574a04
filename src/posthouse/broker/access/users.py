"""Users and their password verifiers. Storage has one entry per user in `Space.USERS`:

key    name in UTF-8
value  JSON object in UTF-8: mechanism to salt, iterations and the two keys, all but iterations in hex
"""

import hmac
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from posthouse.broker.access.decoys import Decoys
from posthouse.broker.access.password_work import PasswordWork
from posthouse.broker.access.scram import MIN_ITERATIONS, Verifier, check_cost, verifier_of
from posthouse.broker.changes import SerializedChanges
from posthouse.broker.stored_entries import readable_entries
from posthouse.model.errors import InvalidCredential, LoginFailed, UnknownUser
from posthouse.model.scram import DEFAULT_ITERATIONS, Mechanism, RandomBytes
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_MAX_NAME_BYTES = 255
_MAX_PASSWORD_BYTES = 1024
_MAX_REMEMBERED = 10_000
_OURSELVES = ""
"""The source of passwords that the broker checks for itself, not for a client before login."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    verifiers: Mapping[Mechanism, Verifier] = field(default_factory=lambda: MappingProxyType({}))

    def digest(self, key: bytes) -> bytes:
        """Of all verifiers: another one after every change, because salts are random."""
        return hmac.digest(key, _encoded(dict(sorted(self.verifiers.items()))), "sha256")


class Belongings(Protocol):
    """What a user has and does not outlive the user."""

    def removal_of(self, user: str) -> Sequence[Put]:
        """What the commit needs that removes the user."""

    def forget(self, user: str) -> None:
        """That commit is durable."""


class Users:
    """Owned by the event loop; a thread computes password hashes."""

    def __init__(
        self,
        storage: Storage,
        random: RandomBytes = os.urandom,
        *,
        min_iterations: int = MIN_ITERATIONS,
        changed: Callable[[str], None] = lambda name: None,
        changes: SerializedChanges | None = None,
        belongings: Belongings | None = None,
    ) -> None:
        """`changed` is called with the name of a user whose password was changed or removed. `changes` are
        shared with those of `belongings`."""
        self._min_iterations = min_iterations
        self._storage = storage
        self._changes = SerializedChanges() if changes is None else changes
        self._belongings = belongings
        self._random = random
        self._users: dict[str, User] = {}
        self._work = PasswordWork()
        self._secret = random(32)
        self.decoys = Decoys(random(32))
        """Verifiers for users that do not exist."""
        # Without a cache, clients that open many connections would keep a CPU busy with one password.
        self._remembered: dict[tuple[str, bytes], User] = {}
        self._changed = changed

    def load(self) -> None:
        for key, value in self._storage.take_state(Space.USERS).items():
            user = _read(key, value)
            self._users[user.name] = user
            self.decoys.replace((), user.verifiers.values())

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed users; `state` is the content of `Space.USERS`. A user whose entry
        cannot be read cannot log in: the password that was known may be an old one."""
        wanted = {user.name: user for user in readable_entries(Space.USERS, state, _read)}
        for name in self._users.keys() - wanted.keys():
            self._take(name, {})
        for name, user in wanted.items():
            if self._users.get(name) != user:
                self._take(name, user.verifiers)

    def close(self) -> None:
        self._work.close()

    def __iter__(self) -> Iterator[User]:
        return iter(self._users.values())

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    async def set_password(
        self,
        name: str,
        password: str,
        *,
        iterations: int | None = None,
        only: Mechanism | None = None,
    ) -> None:
        """Create a user or change its password; for both mechanisms, so that clients can choose."""
        check_name(name)
        check_password(password)
        cost = max(DEFAULT_ITERATIONS, self._min_iterations) if iterations is None else iterations
        check_cost(b"salt", cost, self._min_iterations)
        mechanisms = list(Mechanism) if only is None else [only]

        def made() -> list[Verifier]:
            return [
                verifier_of(mechanism, password, iterations=cost, random=self._random)
                for mechanism in mechanisms
            ]

        await self.replace(name, await self._work.do(_OURSELVES, made))

    async def replace(
        self, name: str, verifiers: Sequence[Verifier], removed: Sequence[Mechanism] = ()
    ) -> None:
        """Set these verifiers and remove the `removed` mechanisms. A user without any verifier is deleted."""
        check_name(name)
        for each in verifiers:
            check_cost(each.salt, each.iterations, self._min_iterations)
        await self._changes.make(self._replace(name, verifiers, removed))

    async def _replace(self, name: str, verifiers: Sequence[Verifier], removed: Sequence[Mechanism]) -> None:
        known = self._users.get(name, User(name))
        kept = {key: value for key, value in known.verifiers.items() if key not in removed}
        kept |= {verifier.mechanism: verifier for verifier in verifiers}
        value = _encoded(kept) if kept else None
        belongings = None if kept else self._belongings
        others = () if belongings is None else belongings.removal_of(name)
        await self._storage.commit([Put(Space.USERS, name.encode(), value), *others])
        self._take(name, kept)
        if belongings is not None:
            belongings.forget(name)

    def _take(self, name: str, verifiers: Mapping[Mechanism, Verifier]) -> None:
        """The user has these verifiers from now on; a user without any is deleted."""
        known = self._users.get(name, User(name))
        self.decoys.replace(known.verifiers.values(), verifiers.values())
        if verifiers:
            self._users[name] = User(name, verifiers)
        else:
            self._users.pop(name, None)
        self._changed(name)

    async def delete(self, name: str) -> None:
        if name not in self._users:
            raise UnknownUser(f"there is no user {name!r}")
        await self.replace(name, (), tuple(Mechanism))

    def verifier(self, name: str, mechanism: Mechanism) -> Verifier:
        """The verifier of a user; for an unknown user a decoy that no password matches, and that never
        changes."""
        user = self._users.get(name)
        found = None if user is None else user.verifiers.get(mechanism)
        return self.decoys.verifier(name, mechanism) if found is None else found

    async def check_password(self, name: str, password: str, source: str = _OURSELVES) -> None:
        """Raises LoginFailed, after the same time whether or not the user exists.

        `source` is the address that the password came from: see `PasswordWork`.
        """
        user = self._users.get(name)
        given = (name, hmac.digest(self._secret, password.encode(errors="surrogatepass"), "sha256"))
        if user is not None and self._remembered.get(given) is user:
            return
        # The two verifiers may belong to different passwords, if only one was changed. Both are always
        # checked, so that the time does not reveal which of them exist.
        verifiers = [self.verifier(name, mechanism) for mechanism in Mechanism]

        def accepted() -> bool:
            return sum(verifier.accepts(password) for verifier in verifiers) > 0

        if len(password) > _MAX_PASSWORD_BYTES or not await self._work.do(source, accepted):
            raise LoginFailed("a wrong user name or password")
        if user is None or self._users.get(name) is not user:
            raise LoginFailed("a wrong user name or password")
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[given] = user


def check_name(name: str) -> None:
    if not name or len(name.encode()) > _MAX_NAME_BYTES:
        raise InvalidCredential(f"a user name has from 1 to {_MAX_NAME_BYTES} bytes")
    if not name.isprintable() or name == "*":
        raise InvalidCredential(f"{name!r} cannot be a user name")


def check_password(password: str) -> None:
    if not password or len(password.encode()) > _MAX_PASSWORD_BYTES:
        raise InvalidCredential(f"a password has from 1 to {_MAX_PASSWORD_BYTES} bytes")


def _encoded(verifiers: Mapping[Mechanism, Verifier]) -> bytes:
    return json.dumps(
        {
            mechanism: {
                "salt": each.salt.hex(),
                "iterations": each.iterations,
                "stored_key": each.stored_key.hex(),
                "server_key": each.server_key.hex(),
            }
            for mechanism, each in verifiers.items()
        }
    ).encode()


def _read(key: bytes, value: bytes) -> User:
    return User(key.decode(), _verifiers(value))


def _verifiers(value: bytes) -> dict[Mechanism, Verifier]:
    found = {}
    for name, given in json.loads(value).items():
        mechanism = Mechanism(name)
        found[mechanism] = Verifier(
            mechanism,
            bytes.fromhex(given["salt"]),
            given["iterations"],
            bytes.fromhex(given["stored_key"]),
            bytes.fromhex(given["server_key"]),
        )
    return found
