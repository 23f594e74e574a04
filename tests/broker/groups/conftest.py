"""A classic group for each test."""

import pytest

from tests.broker.groups.classic_clients import Group


@pytest.fixture
def group() -> Group:
    return Group()
