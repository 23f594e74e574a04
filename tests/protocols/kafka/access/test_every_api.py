"""Every API with every role: what is answered is what the table says."""

import asyncio

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.kafka.codec.own.end_together import (
    ABORT,
    COMMIT,
    QUERY,
    EndTogetherMember,
    EndTogetherRequest,
    EndTogetherResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.served_apis import HANDLERS
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.admin_cases import ADMIN_CASES
from tests.protocols.kafka.access.cases import Case, codes_in
from tests.protocols.kafka.access.group_cases import GROUP_CASES, TRANSACTION_CASES
from tests.protocols.kafka.access.record_cases import RECORD_CASES
from tests.protocols.kafka.access.roles import ROLES, TRANSACTION
from tests.protocols.kafka.access.scene import Scene, connected, log_in
from tests.protocols.kafka.wire import Wire

CASES = (*RECORD_CASES, *GROUP_CASES, *TRANSACTION_CASES, *ADMIN_CASES)
_OWN = {10_000, 10_001, 10_002, 10_003}
"""What a manifest needs is shown on a shared storage: tests/cluster/test_segment_manifests.py. What KeyPlaces
needs: handlers/test_key_places.py."""
_BEFORE_LOGIN = {"api_versions", "sasl_handshake", "sasl_authenticate"}


def test_every_api_has_a_row() -> None:
    assert {case.key for case in CASES} | _OWN == HANDLERS.keys()


def test_every_requirement_has_somebody_who_meets_it_and_somebody_who_does_not() -> None:
    for case in CASES:
        for need in case.needs:
            assert {need.is_met(role) for role in ROLES} == {True, False}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_each_role_is_told(case: Case, broker: AsyncBroker) -> None:
    scene = Scene(broker.app.broker)
    told = {}
    for role in ROLES:
        await scene.prepare(with_topic=case.with_topic)
        async with Wire(broker.kafka) as wire:
            await log_in(wire, role.name)
            told[role.name] = codes_in(await case.ask(wire, scene))
    assert told == {role.name: case.expected(role) for role in ROLES}


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_nobody_gets_in_without_a_login(case: Case, broker: AsyncBroker) -> None:
    scene = Scene(broker.app.broker)
    await scene.prepare()
    async with Wire(broker.kafka) as wire:
        if case.package in _BEFORE_LOGIN:
            await case.ask(wire, scene)
        else:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await case.ask(wire, scene)


@pytest.mark.parametrize("action", [COMMIT, ABORT, QUERY])
async def test_end_together(action: int, broker: AsyncBroker) -> None:
    operation = Operation.DESCRIBE if action == QUERY else Operation.WRITE
    for role in ROLES:
        may = role.may(operation, Kind.TRANSACTIONAL_ID)
        async with Wire(broker.kafka) as wire:
            await log_in(wire, role.name)
            request = EndTogetherRequest(action=action, name=TRANSACTION, sequence=-1, members=[])
            answer = await wire.ask(request, EndTogetherResponse)
            expected = 0 if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert (role.name, answer.error_code) == (role.name, expected)


async def test_end_together_needs_every_member(broker: AsyncBroker) -> None:
    member = EndTogetherMember(transactional_id=f"{TRANSACTION}/0", producer_id=1, producer_epoch=0)
    for user, expected in (
        ("transaction", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("prefixed", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        async with connected(broker, user) as wire:
            request = EndTogetherRequest(action=COMMIT, name=TRANSACTION, sequence=-1, members=[member])
            assert (await wire.ask(request, EndTogetherResponse)).error_code == expected
