"""One broker per module, in memory and on disk, and names that no other test uses."""

import itertools
from collections.abc import Iterator

import pytest

from posthouse.testing import running_broker

_numbers = itertools.count()


@pytest.fixture(scope="module", params=["memory", "file"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address."""
    data = tmp_path_factory.mktemp("data") if request.param == "file" else None
    with running_broker(data=data) as broker:
        yield broker.kafka


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"
