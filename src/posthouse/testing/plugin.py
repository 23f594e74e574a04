"""The pytest plugin: a real broker as a fixture. It is loaded in every pytest run: imports stay light."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from posthouse.testing.thread_broker import ThreadBroker


@pytest.fixture(name="posthouse")
def fresh_broker() -> Iterator[ThreadBroker]:
    """A broker for this test alone, empty and in memory; `posthouse.kafka` is its bootstrap address."""
    yield from _broker()


@pytest.fixture(scope="session")
def posthouse_session() -> Iterator[ThreadBroker]:
    """One broker for all tests of the session: faster, but topics stay until they are deleted."""
    yield from _broker()


def _broker() -> Iterator[ThreadBroker]:
    from posthouse.testing.thread_broker import ThreadBroker

    with ThreadBroker() as broker:
        yield broker
