import pytest

from posthouse.model.errors import InvalidTimestamp
from posthouse.protocols.rocketmq.delays import LEVELS, due_ms, level_ms, retry_level

NOW = 1_700_000_000_000


def test_levels() -> None:
    """1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h."""
    assert len(LEVELS) == 18
    assert [level_ms(level) for level in (1, 2, 3, 4, 5, 14, 15, 16, 17, 18)] == [
        *(1000, 5000, 10_000, 30_000, 60_000),
        *(600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000),
    ]
    assert [level_ms(level) for level in (-1, 0, 19, 1 << 40)] == [0, 0, 7_200_000, 7_200_000]


def test_retries_wait_longer_each_time() -> None:
    assert [retry_level(0, count) for count in (0, 1, 15)] == [3, 4, 18]
    assert retry_level(5, 3) == 5


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({}, None),
        ({"TAGS": "1"}, None),
        ({"DELAY": "3"}, NOW + 10_000),
        ({"DELAY": "0"}, None),
        ({"DELAY": "99"}, NOW + 7_200_000),
        ({"TIMER_DELAY_SEC": "2"}, NOW + 2000),
        ({"TIMER_DELAY_MS": "2"}, NOW + 2),
        ({"TIMER_DELAY_MS": "0"}, None),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, NOW + 1),
        ({"TIMER_DELIVER_MS": str(NOW)}, None),
        ({"TIMER_DELIVER_MS": "1"}, None),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "1"}, NOW + 1),
        # As a consumer sends a delayed message back.
        ({"DELAY": "3", "TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "1"}, NOW + 10_000),
        ({"DELAY": "0", "TIMER_DELAY_MS": "1"}, NOW + 1),
    ],
)
def test_when_a_message_is_due(properties: dict[str, str], due: int | None) -> None:
    assert due_ms(properties, NOW) == due


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", " 1", "9" * 20, "²"])
@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_times_that_are_none(name: str, text: str) -> None:
    with pytest.raises(InvalidTimestamp, match=name):
        due_ms({name: text}, NOW)
