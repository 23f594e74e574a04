"""Settings that were accepted once, and would not be today."""

import logging

import pytest

from posthouse.model.topic_config import Durability, TopicConfig


def test_a_stored_setting_that_is_not_valid_any_more_is_ignored_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = {"retention.ms": "5", "segment.ms": "0", "no.such.setting": "1"}
    with caplog.at_level(logging.WARNING):
        config = TopicConfig().with_stored(stored, "orders")
    assert (config.retention_ms, config.segment_ms) == (5, TopicConfig().segment_ms)
    assert [record.args[:2] for record in caplog.records if isinstance(record.args, tuple)] == [
        ("orders", "segment.ms"),
        ("orders", "no.such.setting"),
    ]


def test_a_broken_promise_of_flushing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = TopicConfig(durability=Durability.OS).with_stored({"flush.ms": "1000"}, "orders")
    assert config.durability is Durability.OS
    assert "topic orders: flush.ms=1000 has no effect with" in caplog.text
