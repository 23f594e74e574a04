"""A client on one broker for all tests here."""

from collections.abc import Iterator

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker


@pytest.fixture
def client(posthouse_session: ThreadBroker) -> Iterator[Client]:
    with Client(posthouse_session.kafka, timeout=30) as client:
        yield client
