"""Users of a broker. Passwords are salted in the client: the broker never sees one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import RequestRefused, refused
from posthouse.model.scram import SALT_BYTES, Mechanism, RandomBytes, salted_password
from posthouse.protocols.kafka.codec.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from posthouse.protocols.kafka.codec.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

_CODES = {Mechanism.SHA_256: 1, Mechanism.SHA_512: 2}
_MECHANISMS = {code: mechanism for mechanism, code in _CODES.items()}
_NO_SUCH_USER = 91
_SAID_TWICE = 92


class UserNotFound(RequestRefused):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no user {name!r}; see 'posthouse user list' for those there are", _NO_SUCH_USER
        )


class UserExists(RequestRefused):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"the user {name!r} exists already; change the password with 'posthouse user passwd {name}'",
            _SAID_TWICE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    name: str
    iterations: Mapping[Mechanism, int]
    """SCRAM iterations by mechanism: more make the stored verifier harder to crack."""


def list_users(connection: BrokerConnection) -> list[UserInfo]:
    return sorted(_described(connection, None), key=lambda user: user.name)


def create_user(connection: BrokerConnection, name: str, password: str, *, iterations: int) -> None:
    """Raises UserExists."""
    if _described(connection, name):
        raise UserExists(name)
    _set_password(connection, name, password, iterations)


def change_password(connection: BrokerConnection, name: str, password: str, *, iterations: int) -> None:
    """Change the password; closes the user's connections. Raises UserNotFound."""
    if not _described(connection, name):
        raise UserNotFound(name)
    _set_password(connection, name, password, iterations)


def delete_user(connection: BrokerConnection, name: str) -> None:
    """Delete the user; closes its connections and keeps its ACLs. Raises UserNotFound."""
    known = _described(connection, name)
    if not known:
        raise UserNotFound(name)
    _alter(
        connection,
        AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=name, mechanism=_CODES[mechanism])
                for mechanism in known[0].iterations
            ],
            upsertions=[],
        ),
        name,
    )


def _set_password(
    connection: BrokerConnection, name: str, password: str, iterations: int, random: RandomBytes = os.urandom
) -> None:
    """Set the password for both mechanisms, so that clients can choose."""
    upsertions = []
    for mechanism, code in _CODES.items():
        salt = random(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=name, mechanism=code, iterations=iterations, salt=salt, salted_password=salted
            )
        )
    _alter(connection, AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions), name)


def _alter(connection: BrokerConnection, request: AlterUserScramCredentialsRequest, name: str) -> None:
    for result in connection.ask(request, AlterUserScramCredentialsResponse).results:
        if result.error_code:
            raise refused(result.error_code, result.error_message, name)


def _described(connection: BrokerConnection, name: str | None) -> list[UserInfo]:
    """All users, or the one of that name; empty if it does not exist."""
    request = DescribeUserScramCredentialsRequest(users=None if name is None else [UserName(name=name)])
    response = connection.ask(request, DescribeUserScramCredentialsResponse)
    if response.error_code:
        raise refused(response.error_code, response.error_message, name or "")
    found = []
    for result in response.results:
        if result.error_code == _NO_SUCH_USER:
            continue
        if result.error_code:
            raise refused(result.error_code, result.error_message, result.user)
        iterations = {
            _MECHANISMS[each.mechanism]: each.iterations
            for each in result.credential_infos
            if each.mechanism in _MECHANISMS
        }
        found.append(UserInfo(name=result.user, iterations=iterations))
    return found
