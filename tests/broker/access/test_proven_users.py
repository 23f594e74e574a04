"""Users who have logged in at another broker of the cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.access.proven_users import ProvenUsers
from posthouse.broker.access.scram import MIN_ITERATIONS
from posthouse.model.errors import LoginFailed
from posthouse.model.proven_user import CERTIFICATE, PLAIN, ProvenUser
from posthouse.model.scram import Mechanism
from posthouse.storage.spaces import Space
from tests.broker.members import Pair, pair, started
from tests.broker.test_definition_follower import logins

PASSWORD = "open sesame"


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Pair]:
    async with pair(**logins(tmp_path)) as made:
        users = made.coordinator.access.users
        await users.set_password("ann", PASSWORD, iterations=MIN_ITERATIONS)
        await users.set_password("ben", PASSWORD, iterations=MIN_ITERATIONS, only=Mechanism.SHA_512)
        yield made


def check(brokers: Pair, user: ProvenUser) -> None:
    brokers.coordinator.access.proven_users.check(user, has_tls=True)


async def test_a_user_of_a_member_that_knows_the_same(brokers: Pair) -> None:
    async with started(brokers.member) as member:
        for mechanism in (PLAIN, *Mechanism):
            check(brokers, member.access.proven_users.prove("ann", mechanism))
        check(brokers, member.access.proven_users.prove("ben", Mechanism.SHA_512))


async def test_a_change_of_one_mechanism_is_a_change(brokers: Pair) -> None:
    async with started(brokers.member) as member:
        users = brokers.coordinator.access.users
        proven = member.access.proven_users.prove("ann", Mechanism.SHA_256)
        await users.set_password("ann", PASSWORD, iterations=MIN_ITERATIONS, only=Mechanism.SHA_512)
        with pytest.raises(LoginFailed, match="changed since"):
            check(brokers, proven)
        brokers.member_storage.follow()
        check(brokers, member.access.proven_users.prove("ann", Mechanism.SHA_256))


async def test_a_user_who_was_made_anew_is_another_one(brokers: Pair) -> None:
    users = brokers.coordinator.access.users
    proven = brokers.coordinator.access.proven_users.prove("ann", PLAIN)
    await users.delete("ann")
    with pytest.raises(LoginFailed, match="unknown here"):
        check(brokers, proven)
    await users.set_password("ann", PASSWORD, iterations=MIN_ITERATIONS)
    with pytest.raises(LoginFailed, match="changed since"):
        check(brokers, proven)


async def test_a_mechanism_that_the_user_does_not_have(brokers: Pair) -> None:
    proven = brokers.coordinator.access.proven_users.prove("ben", Mechanism.SHA_256)
    with pytest.raises(LoginFailed, match="a mechanism that the user does not have"):
        check(brokers, proven)


async def test_a_password_without_a_digest_proves_nothing(brokers: Pair) -> None:
    with pytest.raises(LoginFailed):
        check(brokers, ProvenUser(name="ann", mechanism=PLAIN))


async def test_a_member_that_has_not_read_the_secret_proves_nothing(brokers: Pair) -> None:
    secret = brokers.storage._state.pop(Space.SECRETS)
    async with started(brokers.member) as member:
        with pytest.raises(LoginFailed, match="changed since"):
            check(brokers, member.access.proven_users.prove("ann", PLAIN))
        brokers.storage._state[Space.SECRETS] = secret
        brokers.member_storage.follow()
        check(brokers, member.access.proven_users.prove("ann", PLAIN))


@pytest.mark.parametrize(("takes", "has_tls"), [(True, True), (True, False), (False, True)])
async def test_certificates(brokers: Pair, takes: bool, has_tls: bool) -> None:
    proven_users = ProvenUsers(brokers.coordinator.access.users, bytes, takes_certificates=takes)
    proven = proven_users.prove("cleo", CERTIFICATE)
    assert proven.credential is None
    if takes and has_tls:
        proven_users.check(proven, has_tls=has_tls)
    else:
        with pytest.raises(LoginFailed, match="with a certificate"):
            proven_users.check(proven, has_tls=has_tls)


async def test_the_digest_is_not_shown(brokers: Pair) -> None:
    proven = brokers.coordinator.access.proven_users.prove("ann", PLAIN)
    assert proven.credential is not None
    assert "credential" not in repr(proven)
