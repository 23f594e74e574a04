"""Names that no other test uses."""

import uuid

import pytest


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"
