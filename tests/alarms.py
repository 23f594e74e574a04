"""What the broker itself warned of: client libraries log from threads of their own, whenever they like."""

import logging

import pytest


def alarms(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.partition(".")[0] == "posthouse"
    ]
