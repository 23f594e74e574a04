"""The load beside scrapes, in a tiny volume."""

import time
from pathlib import Path

import pytest

from bench import counting, scraping
from tests.yardstick import slowness


def test_a_broker_is_scraped_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scraping, "_EVERY_SECONDS", 0.01)
    with scraping._broker(3) as broker:
        scraper = scraping.Scraper(broker.admin)
        deadline = time.monotonic() + 60
        while scraper.scrapes < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        scraper.stop()
    assert scraper.scrapes >= 2
    assert scraper.size > 10_000
    assert list(tmp_path.glob(".bench/*")) == []


def test_a_scrape_takes_less_than_a_percent_of_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1,000 queues, as in `make bench-scrape`. The best of some: other programs take from the rest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scraping, "_SCRAPES_IN_A_ROW", 20)
    with scraping._broker(1000) as broker:
        shares = [scraping._cpu_of_a_scrape(broker) for _ in range(5)]
    assert min(shares) < scraping._MOST_SHARE


def test_counting_takes_little() -> None:
    """Of a produce request, which takes 50 µs and more, and of a message, which takes 10 and more. Twice the
    percent: the benchmark is exact."""
    assert min(counting.produce_seconds() / slowness() for _ in range(3)) < 1.0e-6
    assert min(counting.message_seconds() / slowness() for _ in range(3)) < 0.2e-6


@pytest.mark.parametrize(
    ("ratios", "is_worse"),
    [
        ([1.0] * 50, False),
        ([0.94, 1.06] * 25, False),
        ([0.98] * 50, True),
        ([0.95] * 40 + [1.05] * 10, True),
        ([0.5] * 3, False),  # too few to say
    ],
)
def test_worse_than_chance(ratios: list[float], is_worse: bool) -> None:
    assert scraping.is_worse_than(0.99, ratios) == is_worse
