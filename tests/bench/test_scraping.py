"""The load beside scrapes, in a tiny volume."""

import time
from pathlib import Path

import pytest

from bench import scraping


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
