"""Users by Kafka's admin calls: what a client sends is all that a login needs, and none of it comes back."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

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
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.scene import connected, log_in, secured
from tests.protocols.kafka.wire import Wire

SHA_256, SHA_512 = 1, 2
_DIGESTS = {SHA_256: "sha256", SHA_512: "sha512"}


def upsertion(name: str, password: str, mechanism: int = SHA_256, **fields: Any) -> ScramCredentialUpsertion:
    salt = b"some salt"
    iterations = 8192
    salted = hashlib.pbkdf2_hmac(_DIGESTS.get(mechanism, "sha256"), password.encode(), salt, iterations)
    given: dict[str, Any] = {"iterations": iterations, "salt": salt, "salted_password": salted}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **(given | fields))


def deletion(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(wire: Wire, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
    )
    answer = await wire.ask(request, AlterUserScramCredentialsResponse)
    return {result.user: result.error_code for result in answer.results}


async def described(wire: Wire, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer = await wire.ask(request, DescribeUserScramCredentialsResponse)
    assert answer.error_code == 0
    return {
        result.user: (
            result.error_code,
            [(info.mechanism, info.iterations) for info in result.credential_infos],
        )
        for result in answer.results
    }


async def test_a_new_user_logs_in(broker: AsyncBroker) -> None:
    async with connected(broker, "admin") as wire:
        assert await alter(wire, upsertion("ann", "pass"), upsertion("ben", "word", SHA_512)) == {
            "ann": 0,
            "ben": 0,
        }
        assert await described(wire, "ann", "ben") == {
            "ann": (0, [(SHA_256, 8192)]),
            "ben": (0, [(SHA_512, 8192)]),
        }
        everybody = await described(wire)
        assert {"ann", "ben", "admin"} <= everybody.keys()
    for name, password in (("ann", "pass"), ("ben", "word")):
        async with Wire(broker.kafka) as wire:
            await log_in(wire, name, password)


async def test_another_password_sends_those_away_who_had_the_old_one(broker: AsyncBroker) -> None:
    async with connected(broker, "admin") as wire:
        await alter(wire, upsertion("ann", "old"))
        async with Wire(broker.kafka) as anns:
            await log_in(anns, "ann", "old")
            await alter(wire, upsertion("ann", "new"))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await anns.receive_frame()
        async with Wire(broker.kafka) as anns:
            with pytest.raises(AssertionError):
                await log_in(anns, "ann", "old")
        async with Wire(broker.kafka) as anns:
            await log_in(anns, "ann", "new")


async def test_whoever_changes_their_own_password_hears_that_it_worked(broker: AsyncBroker) -> None:
    async with connected(broker, "admin") as wire:
        changes = (upsertion("admin", "new"), upsertion("admin", "new", SHA_512))
        assert await alter(wire, *changes) == {"admin": 0}
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await wire.receive_frame()
    async with Wire(broker.kafka) as wire:
        await log_in(wire, "admin", "new")


async def test_a_deleted_user(broker: AsyncBroker) -> None:
    async with connected(broker, "admin") as wire:
        await alter(wire, upsertion("ann", "pass"), upsertion("ann", "pass", SHA_512))
        assert await alter(wire, deletion("ann", SHA_512)) == {"ann": 0}
        assert (await described(wire, "ann"))["ann"] == (0, [(SHA_256, 8192)])
        assert await alter(wire, deletion("ann", SHA_512)) == {"ann": ErrorCode.RESOURCE_NOT_FOUND}
        assert await alter(wire, deletion("ann")) == {"ann": 0}
        assert (await described(wire, "ann"))["ann"] == (ErrorCode.RESOURCE_NOT_FOUND, [])
    assert broker.app.broker.access.users.get("ann") is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("ann", "pass", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", iterations=100_001), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", salt=bytes(1025)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", salted_password=bytes(1025)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("", "pass"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("*", "pass"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\nb", "pass"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a" * 256, "pass"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", "pass", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("ann", "pass", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("ann"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("ann", 7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_what_is_not_accepted(change: Any, code: ErrorCode, broker: AsyncBroker) -> None:
    users = broker.app.broker.access.users
    before = len(users)
    async with connected(broker, "admin") as wire:
        assert await alter(wire, change, upsertion("ben", "word")) == {change.name: code, "ben": 0}
    assert len(users) == before + 1


async def test_a_user_named_twice_is_not_changed(broker: AsyncBroker) -> None:
    async with connected(broker, "admin") as wire:
        twice = await alter(wire, upsertion("ann", "one"), upsertion("ann", "two"), upsertion("ben", "word"))
        assert twice == {"ann": ErrorCode.DUPLICATE_RESOURCE, "ben": 0}
        both = await alter(wire, deletion("ben"), upsertion("ben", "other"))
        assert both == {"ben": ErrorCode.DUPLICATE_RESOURCE}
        request = DescribeUserScramCredentialsRequest(users=[UserName(name="ben"), UserName(name="ben")])
        [result] = (await wire.ask(request, DescribeUserScramCredentialsResponse)).results
        assert result.error_code == ErrorCode.DUPLICATE_RESOURCE
        async with Wire(broker.kafka) as bens:
            await log_in(bens, "ben", "word")


async def test_users_can_be_prepared_before_they_have_to_log_in() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        assert await alter(wire, upsertion("ann", "pass")) == {"ann": 0}
        assert await described(wire) == {"ann": (0, [(SHA_256, 8192)])}


async def test_what_kafka_accepts_by_default(broker: AsyncBroker, caplog: pytest.LogCaptureFixture) -> None:
    """4,096 iterations. The broker says in its log that this is less than it uses itself."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pass", b"some salt", 4096)
    async with connected(broker, "admin") as wire:
        given = upsertion("ann", "pass", iterations=4096, salted_password=salted)
        assert await alter(wire, given) == {"ann": 0}
        assert (await described(wire, "ann"))["ann"] == (0, [(SHA_256, 4096)])
    async with Wire(broker.kafka) as wire:
        await log_in(wire, "ann", "pass")
    assert "user 'ann': the new SCRAM-SHA-256 password has 4096 iterations" in caplog.text


@pytest.mark.parametrize("size", [1, 31, 33, 64, 1024])
async def test_salted_passwords_of_any_length(broker: AsyncBroker, size: int) -> None:
    async with connected(broker, "admin") as wire:
        assert await alter(wire, upsertion("ann", "pass", salted_password=bytes(size))) == {"ann": 0}


async def test_more_iterations_can_be_asked_for(tmp_path: Path) -> None:
    async with (
        secured(tmp_path, scram_min_iterations=16_384) as broker,
        connected(broker, "admin") as wire,
    ):
        weak = await alter(wire, upsertion("ann", "pass"))
        assert weak == {"ann": ErrorCode.UNACCEPTABLE_CREDENTIAL}
        assert await alter(wire, upsertion("ann", "pass", iterations=16_384)) == {"ann": 0}
