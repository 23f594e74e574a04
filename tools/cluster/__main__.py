"""Two brokers on one PostgreSQL database and one object store; one is killed while a client goes on."""

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools.cluster.brokers import BrokerProcess
from tools.cluster.object_stores import STORES, object_store
from tools.cluster.services import Missing, postgres
from tools.cluster.traffic import PER_SECOND, TOPIC, Traffic

_SECONDS_BEFORE = 5.0
_TAKEOVER_SECONDS = 60.0
_STEPS = iter(range(1, 100))


def say(text: str) -> None:
    print(f"{next(_STEPS):2}. {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the demonstration")
    parser.add_argument("--objects", choices=STORES, help="not the first that can be had")
    arguments = parser.parse_args()
    try:
        with ExitStack() as running:
            return _run(running, arguments.once, arguments.objects)
    except Missing as error:
        print(error, file=sys.stderr)
        return 1


def _run(running: ExitStack, once: bool, store: str | None) -> int:
    place = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="posthouse-cluster-")))
    place.chmod(0o755)  # PostgreSQL runs as a user of its own
    database = running.enter_context(postgres(place))
    say(f"PostgreSQL: {database}")
    objects = running.enter_context(object_store(place, store))
    say(objects.description)
    one, two = (BrokerProcess(name, place, database, objects) for name in ("one", "two"))
    for broker in (one, two):
        running.callback(broker.stop)
        role = broker.start()
        say(f"broker {broker.name}, {role}: Kafka on {broker.kafka}, AMQP on {broker.amqp}")
    status = _demonstrate(one, two)
    if once or status:
        return status
    say(f"broker one is started again, as {one.start()}")
    addresses = f"--bootstrap {one.kafka},{two.kafka}"
    print(
        f"\nThe cluster is up; logs are in {place}. From another terminal:\n\n"
        f"  posthouse {addresses} consume {TOPIC} --from-beginning --max 5\n"
        f"  echo hello | posthouse {addresses} produce greetings\n"
        f"  posthouse storage status --database {database}\n\n"
        "Ctrl-C stops everything and removes its data.",
        flush=True,
    )
    try:
        signal.pause()
    except KeyboardInterrupt:
        print("\nstopping", flush=True)
    return 0


def _takeover(broker: BrokerProcess) -> dict[str, Any] | None:
    """The lease, once this broker holds it; None if it does not take it in time."""
    deadline = time.monotonic() + _TAKEOVER_SECONDS
    while time.monotonic() < deadline:
        lease: dict[str, Any] = broker.status()["lease"]
        if lease["holder"] == broker.name:
            return lease
        time.sleep(0.2)
    return None


def _demonstrate(one: BrokerProcess, two: BrokerProcess) -> int:
    with Traffic(f"{one.kafka},{two.kafka}") as traffic:
        say(f"a Kafka client sends {PER_SECOND} numbers a second to the topic {TOPIC}, a group reads them")
        if not traffic.wait_for(int(_SECONDS_BEFORE * PER_SECOND), 60):
            print("the brokers do not acknowledge anything", file=sys.stderr)
            return 1
        say(f"{len(traffic.acknowledged):,} are acknowledged; kill -9 of broker one (process {one.pid})")
        one.kill()
        if not traffic.wait_for(PER_SECOND, _TAKEOVER_SECONDS):
            print(f"nothing is acknowledged {_TAKEOVER_SECONDS:g} s after the kill", file=sys.stderr)
            return 1
        say("broker two acknowledges for its partitions; no broker coordinates the group yet")
        taken = _takeover(two)
        if taken is None:
            print(f"no broker coordinates {_TAKEOVER_SECONDS:g} s after the kill", file=sys.stderr)
            return 1
        say(f"broker {taken['holder']} has taken the lease (epoch {taken['epoch']}) and coordinates")
        if not traffic.wait_for(PER_SECOND, _TAKEOVER_SECONDS):
            print("nothing is acknowledged after the takeover", file=sys.stderr)
            return 1
        say(f"the client goes on; at most it waited {traffic.longest_pause():.1f} s for an acknowledgement")
        time.sleep(_SECONDS_BEFORE / 2)
        traffic.finish(60)
    failed = f", {len(traffic.failures):,} FAILED" if traffic.failures else ""
    say(f"{traffic.sent:,} numbers sent, {len(traffic.acknowledged):,} acknowledged{failed}")
    say(f"{len(set(traffic.read)):,} read: {traffic.lost or 'nothing'} lost")
    if traffic.repeated:
        say(f"{traffic.repeated:,} were read twice: the group had not committed them when the broker died")
    return 1 if traffic.lost or traffic.failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
