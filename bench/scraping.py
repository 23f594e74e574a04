"""`make bench-scrape`: the same broker with and without a scrape of /metrics every second.

    python -m bench.scraping [--rounds 5] [--scale 1.0] [--queues 1000]

Brokers take turns and change places in every round, as in `bench.compare`, whose loads these are. Both have
`--queues` queues besides, so that a scrape has something to show. Rounds differ by more than a scrape costs.
So the CPU time of a scrape is measured by itself, too: the broker has one thread that serves, and what a
scrape takes of a second is what it can take of the throughput. So is the time to count requests and messages.

Ends with status 1 if a scrape or the counting takes more than 1 %, or if so many figures were more than 1 %
worse with scrapes that it cannot be chance.
"""

import argparse
import http.client
import math
import os
import statistics
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from bench import counting
from bench.compare import ROOT, Figure, figures_of, ratio, table
from bench.queues.connection import Connection
from bench.scale.brokers import Broker, scratch

_EVERY_SECONDS = 1.0
_SCRAPES_IN_A_ROW = 100
_MOST_SHARE = 0.01
"""Of the broker's time."""
_CHANCE = 0.01
"""Less than this is none."""
_COUNTED = {
    "produce requests of 16 KiB": (counting.produce_seconds, ("Kafka produce, broker CPU",)),
    "messages of queues": (
        counting.message_seconds,
        ("AMQP publish, confirmed, broker CPU", "AMQP consume and ack, broker CPU"),
    ),
}
"""What is counted, and the figures in microseconds that it is a part of."""


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
        shares = {"a scrape every second": _cpu_of_a_scrape(broker) / _EVERY_SECONDS}
    for what, (seconds, names) in _COUNTED.items():
        whole = sum(statistics.median(quiet.value for quiet, _ in found[name]) for name in names)
        shares[f"counting {what}"] = seconds() * 1e6 / whole
    for what, share in shares.items():
        console.print(f"{what}: {share:.2%} of the time; {_verdict(share < _MOST_SHARE)}")
    ratios = [ratio(*pair) for pairs in found.values() for pair in pairs]
    is_worse = is_worse_than(1 - _MOST_SHARE, ratios)
    console.print(
        f"throughput and latency: {statistics.median(ratios):.3f} times as good; {_verdict(not is_worse)}"
    )
    sys.exit(is_worse or max(shares.values()) >= _MOST_SHARE)


def _verdict(is_reached: bool) -> str:
    return f"the aim is less than {_MOST_SHARE:.0%}: {'reached' if is_reached else 'missed'}"


def is_worse_than(least: float, ratios: Sequence[float]) -> bool:
    """Whether more ratios are below `least` than chance would put there if their median were not: a sign
    test."""
    below, count = sum(each < least for each in ratios), len(ratios)
    return bool(sum(math.comb(count, each) for each in range(below, count + 1)) < _CHANCE * 2**count)


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
