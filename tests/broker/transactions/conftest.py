"""A broker with a clock to move by hand; tests with a client run for both protocols."""

from collections.abc import AsyncIterator

import pytest

from tests.broker.transactions.producers import Bench, Client


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.start()
    yield made
    await made.close()


@pytest.fixture(params=[False, True], ids=["adds partitions", "bumps epochs"])
async def client(request: pytest.FixtureRequest, bench: Bench) -> Client:
    made = Client(bench, epoch_per_transaction=request.param)
    await made.init()
    return made


@pytest.fixture
async def old(bench: Bench) -> Client:
    """A client that keeps its epoch from one transaction to the next."""
    made = Client(bench, "old", epoch_per_transaction=False)
    await made.init()
    return made
