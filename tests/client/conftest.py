"""A client on one broker for all tests here; every test has a topic name of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker

_numbers = count()


@pytest.fixture
def client(posthouse_session: ThreadBroker) -> Iterator[Client]:
    with Client(posthouse_session.kafka, timeout=10) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"client-{next(_numbers)}"
