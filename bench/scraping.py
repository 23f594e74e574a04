"""`make bench-scrape`: the same broker with and without a scrape of /metrics every second.

    python -m bench.scraping [--rounds 5] [--scale 1.0] [--queues 1000]

Brokers take turns and change places in every round, as in `bench.compare`, whose loads these are. Both have
`--queues` queues besides, so that a scrape has something to show. Rounds differ by more than a scrape costs.
So the CPU time of a scrape is measured by itself, too: the broker has one thread that serves, and what a
scrape takes of a second is what it can take of the throughput. Ends with status 1 if that is over 1 %.
"""

import argparse
import http.client
import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from bench.compare import ROOT, Figure, figures_of, table
from bench.queues.connection import Connection
from bench.scale.brokers import Broker, scratch

_EVERY_SECONDS = 1.0
_SCRAPES_IN_A_ROW = 100
_MOST_SHARE = 0.01
"""Of the broker's time."""


class Scraper:
    """Asks for /metrics every second."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopped = threading.Event()
        self.scrapes = 0
        self.size = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_SECONDS):
            with urllib.request.urlopen(f"http://{self._address}/metrics") as response:
                self.size = len(response.read())
            self.scrapes += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def _scraped(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/metrics") as response:
        return bytes(response.read())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scraping", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="how much load, 1.0 is a full round")
    parser.add_argument("--queues", type=int, default=1000, help="idle ones")
    given = parser.parse_args()
    console = Console()
    found: dict[str, list[tuple[Figure, Figure]]] = {}
    scrapes = size = 0
    for number in range(given.rounds):
        figures: dict[bool, list[Figure]] = {}
        for is_scraped in (False, True) if number % 2 == 0 else (True, False):
            with console.status(f"round {number + 1} of {given.rounds} …"), _broker(given.queues) as broker:
                _scraped(broker.admin)  # the first one imports the handlers: no part of a second's scrape
                scraper = Scraper(broker.admin) if is_scraped else None
                figures[is_scraped] = list(figures_of(broker, given.scale))
                if scraper is not None:
                    scraper.stop()
                    scrapes, size = scrapes + scraper.scrapes, scraper.size
        for quiet, scraped in zip(figures[False], figures[True], strict=True):
            found.setdefault(quiet.name, []).append((quiet, scraped))
    console.print(table("not scraped", "scraped", found))
    console.print(f"{scrapes} scrapes, the last one of {size:,} bytes")
    with _broker(given.queues) as broker:
        seconds = _cpu_of_a_scrape(broker)
    share = seconds / _EVERY_SECONDS
    console.print(
        f"a scrape takes {seconds * 1000:.1f} ms of the broker's CPU time: {share:.2%} of a second; "
        f"the aim is less than {_MOST_SHARE:.0%}: {'reached' if share < _MOST_SHARE else 'missed'}"
    )
    sys.exit(share >= _MOST_SHARE)


def _cpu_of_a_scrape(broker: Broker) -> float:
    """By one client that keeps its connection, as Prometheus does."""
    host, _, port = broker.admin.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port))
    _ask(connection)
    before = broker.cpu_seconds()
    for _ in range(_SCRAPES_IN_A_ROW):
        _ask(connection)
    spent = broker.cpu_seconds() - before
    connection.close()
    return spent / _SCRAPES_IN_A_ROW


def _ask(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    response.read()
    if response.status != http.client.OK:
        raise RuntimeError(f"/metrics answered {response.status} {response.reason}")


@contextmanager
def _broker(queues: int) -> Iterator[Broker]:
    with scratch() as directory:
        broker = Broker(directory, {"admin": "127.0.0.1:0"})
        try:
            with Connection(broker.amqp) as connection:
                for number in range(queues):
                    connection.declare_queue(f"idle-{number}")
            yield broker
        finally:
            broker.kill()


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
