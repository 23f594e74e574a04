"""One broker process for the tests that only need some broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Serving


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    directory: Path = tmp_path_factory.mktemp("cli") / "data"
    with Serving(directory) as serving:
        yield serving


@pytest.fixture
def kafka(serving: Serving) -> str:
    return serving.kafka
