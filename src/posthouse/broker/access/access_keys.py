"""Access keys: secrets of users with which clients sign their requests. Storage has one entry for each in
`Space.ACCESS_KEYS`:

key    the access key in ASCII
value  JSON object in UTF-8: user; secret; created, in ms since 1970

RocketMQ's clients sign with HMAC-SHA1: to check that, the broker needs the secret itself, and a verifier as
of a password would not do. So secrets are stored as they are, as safe as the directory or the database is. A
user has them beside the password, never in its place. They are shown once, when they are made.

Invariant: the user of a key exists. One commit removes a user and its keys.
"""

import hmac
import json
import os
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from posthouse.broker.changes import SerializedChanges
from posthouse.broker.stored_entries import readable_entries
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    AccessKeyExists,
    InvalidCredential,
    LoginFailed,
    UnknownAccessKey,
    UnknownUser,
)
from posthouse.model.scram import RandomBytes
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

MOST_OF_USER: Final = 10
"""One in use, one to come, and some that are forgotten. A connection is known under each that it uses."""
LONGEST_KEY: Final = 128
SHORTEST_SECRET: Final = 8
LONGEST_SECRET: Final = 1024
_KEY_BYTES: Final = 10
_SECRET_BYTES: Final = 30
_REFUSAL: Final = "a wrong access key or signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    name: str
    """What clients send."""
    user: str
    secret: str = field(repr=False)
    created_ms: int


class AccessKeys:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        random: RandomBytes = os.urandom,
        *,
        is_user: Callable[[str], bool],
        changes: SerializedChanges,
        removed: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`changes` are those of users, too. `removed` is called with each key that is no longer valid."""
        self._storage = storage
        self._clock = clock
        self._random = random
        self._is_user = is_user
        self._changes = changes
        self._removed = removed
        self._keys: dict[str, AccessKey] = {}
        self._of_user: dict[str, dict[str, AccessKey]] = {}
        self._decoy = random(_SECRET_BYTES)

    def load(self) -> None:
        for key, value in self._storage.take_state(Space.ACCESS_KEYS).items():
            self._take(_read(key, value))

    def follow(self, state: Mapping[bytes, bytes]) -> None:
        """Another broker has changed access keys; `state` is the content of `Space.ACCESS_KEYS`. A key whose
        entry cannot be read is not valid: the secret that was known may be an old one."""
        wanted = {each.name: each for each in readable_entries(Space.ACCESS_KEYS, state, _read)}
        for known in list(self._keys.values()):
            if wanted.get(known.name) != known:
                self._forget(known)
        for each in wanted.values():
            self._take(each)

    def of(self, user: str) -> Sequence[AccessKey]:
        """In the order of their creation."""
        return sorted(self._of_user.get(user, {}).values(), key=lambda each: (each.created_ms, each.name))

    def new_name(self) -> str:
        return b32encode(self._random(_KEY_BYTES)).decode()

    async def add(self, user: str, name: str, *, secret: str | None = None) -> AccessKey:
        """Durable on return. If no secret is given, one is made. Raises InvalidCredential, UnknownUser and
        AccessKeyExists."""
        made = AccessKey(
            name=name,
            user=user,
            secret=b32encode(self._random(_SECRET_BYTES)).decode() if secret is None else secret,
            created_ms=self._clock.now_ms(),
        )
        check_access_key(made.name)
        check_secret(made.secret)
        await self._changes.make(self._add(made))
        return made

    async def _add(self, made: AccessKey) -> None:
        self._check_user(made.user)
        if made.name in self._keys:
            raise AccessKeyExists(
                f"there is an access key {made.name!r} already; remove it, or take another name"
            )
        if len(self._of_user.get(made.user, {})) >= MOST_OF_USER:
            raise InvalidCredential(
                f"{made.user!r} has {MOST_OF_USER} access keys already; remove one of them"
            )
        await self._storage.commit([_put(made)])
        self._take(made)

    async def remove(self, user: str, name: str) -> None:
        """Durable on return; connections that use the key are closed. Raises UnknownUser and
        UnknownAccessKey."""
        await self._changes.make(self._remove(user, name))

    async def _remove(self, user: str, name: str) -> None:
        self._check_user(user)
        known = self._of_user.get(user, {}).get(name)
        if known is None:
            raise UnknownAccessKey(f"{user!r} has no access key {name!r}")
        await self._storage.commit([_removal(known)])
        self._forget(known)

    def removal_of(self, user: str) -> list[Put]:
        """What the commit needs that removes the user."""
        return [_removal(each) for each in self._of_user.get(user, {}).values()]

    def forget(self, user: str) -> None:
        """That commit is durable."""
        for each in self.of(user):
            self._forget(each)

    def verify(self, name: str, messages: Iterable[bytes], signature: bytes) -> AccessKey:
        """The key that has made the signature: HMAC-SHA1 of one of these messages. Raises LoginFailed, which
        says the same and takes the same time whether or not there is such a key."""
        known = self._keys.get(name)
        if known is not None and not self._is_user(known.user):
            known = None  # a broker that follows learns of users and keys one after the other
        secret = self._decoy if known is None else known.secret.encode()
        for message in messages:
            if hmac.compare_digest(hmac.digest(secret, message, "sha1"), signature) and known is not None:
                return known
        raise LoginFailed(_REFUSAL)

    def _check_user(self, user: str) -> None:
        if not self._is_user(user):
            raise UnknownUser(f"there is no user {user!r}")

    def _take(self, key: AccessKey) -> None:
        self._keys[key.name] = key
        self._of_user.setdefault(key.user, {})[key.name] = key

    def _forget(self, key: AccessKey) -> None:
        del self._keys[key.name]
        of_user = self._of_user[key.user]
        del of_user[key.name]
        if not of_user:
            del self._of_user[key.user]
        self._removed(key.name)


def check_access_key(name: str) -> None:
    if not 0 < len(name) <= LONGEST_KEY:
        raise InvalidCredential(f"an access key has from 1 to {LONGEST_KEY} characters")
    # Slashes and commas would end it in the header of a gRPC call.
    if not all("!" <= character <= "~" and character not in "/,=" for character in name):
        raise InvalidCredential(
            "an access key has letters, digits and signs of ASCII, without / , = and blanks"
        )


def check_secret(secret: str) -> None:
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET or not secret.isprintable():
        raise InvalidCredential(
            f"a secret has from {SHORTEST_SECRET} to {LONGEST_SECRET} characters, all of them printable"
        )


def _put(key: AccessKey) -> Put:
    value = {"user": key.user, "secret": key.secret, "created": key.created_ms}
    return Put(Space.ACCESS_KEYS, key.name.encode(), json.dumps(value).encode())


def _removal(key: AccessKey) -> Put:
    return Put(Space.ACCESS_KEYS, key.name.encode(), None)


def _read(key: bytes, value: bytes) -> AccessKey:
    given = json.loads(value)
    user, secret, created_ms = given["user"], given["secret"], given["created"]
    if not isinstance(user, str) or not isinstance(secret, str) or not isinstance(created_ms, int):
        raise ValueError("an access key of another shape")
    return AccessKey(name=key.decode(), user=user, secret=secret, created_ms=created_ms)
