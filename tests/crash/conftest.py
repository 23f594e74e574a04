import pytest


@pytest.fixture(scope="session", autouse=True)
def storages(shared_storages: None) -> None:
    """Brokers of all tests here may be started on shared storage."""
