"""Tests with the marker `long` take too long for `make test`. They run in `make test-long`, which sets
POSTHOUSE_LONG."""

import os

import pytest


def skip_long(items: list[pytest.Item]) -> None:
    """Unless they are asked for."""
    if os.environ.get("POSTHOUSE_LONG") == "1":
        return
    skip = pytest.mark.skip(reason="takes long: in make test-long only")
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(skip)
