"""Start the broker, let a shop send orders, run the template pipeline, show what it made, stop everything."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from posthouse.client import Client
from tools.demo.orders import PER_SECOND, TOPIC, Shop

POSTHOUSE = [sys.executable, "-m", "posthouse.cli.main"]
SECONDS = float(os.environ.get("POSTHOUSE_DEMO_SECONDS", "30"))
_START_SECONDS = 120
_STOP_SECONDS = 90
_ROWS = 12

console = Console()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="posthouse-demo-") as directory:
        place = Path(directory)
        with broker(place / "data") as address:
            console.print(f"[bold]1.[/] a broker on {address}")
            with Client(address) as client:
                client.create_topic(TOPIC, partitions=4)
            project = place / "orders"
            subprocess.run([*POSTHOUSE, "pipeline", "init", project], check=True, stderr=subprocess.DEVNULL)
            console.print("[bold]2.[/] 'posthouse pipeline init orders' made a project")
            with Shop(address) as shop:
                console.print(f"[bold]3.[/] a Kafka client sends {PER_SECOND} orders a second to {TOPIC!r}")
                console.print(f"[bold]4.[/] 'posthouse pipeline run orders' on Spark, for {SECONDS:.0f} s")
                status = run_pipeline(project, address)
            if status != 0:
                console.print(f"the pipeline ended with exit code {status}; see above for the reason")
                return 1
            console.print(f"[bold]5.[/] {shop.sent:,} orders became this table of Parquet files")
            show_table(project / "storage" / "tables" / "sales")
            show_topic(address, "sales")
    return 0


@contextmanager
def broker(data: Path) -> Iterator[str]:
    place = ("--data", str(data), "--kafka", "127.0.0.1:0", "--amqp", "off", "--admin", "off")
    command = [*POSTHOUSE, "serve", *place, "--log-level", "warning"]
    # In a session of its own, so that Ctrl-C reaches us and the pipeline first.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listeners"]["kafka"]
    finally:
        process.terminate()
        process.wait()


def run_pipeline(project: Path, address: str) -> int:
    """Its exit code, after it has worked for a while and was asked to stop."""
    process = subprocess.Popen([*POSTHOUSE, "pipeline", "run", project, "--bootstrap", address])
    try:
        first = project / "storage" / "checkpoints" / "sales-topic" / "commits" / "0"
        deadline = time.monotonic() + _START_SECONDS
        while not first.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return process.wait(_STOP_SECONDS)
        except KeyboardInterrupt:
            process.terminate()
            return process.wait(_STOP_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def show_table(directory: Path) -> None:
    files = sorted(map(str, directory.glob("part-*.parquet")))
    rows = pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist() if files else []
    rows.sort(key=lambda row: (row["start"], row["item"]))
    table = Table("window", "item", "orders", "quantity", "revenue", box=SIMPLE_HEAD)
    for row in rows[-_ROWS:]:
        window = f"{row['start']:%H:%M:%S} – {row['end']:%H:%M:%S}"
        table.add_row(
            window, row["item"], f"{row['orders']:,}", f"{row['quantity']:,}", f"{row['revenue']:,.2f}"
        )
    console.print(table)
    if len(rows) > _ROWS:
        console.print(f"(the last {_ROWS} of {len(rows)} rows)")


def show_topic(address: str, topic: str) -> None:
    with Client(address) as client:
        known = [each.name for each in client.topics()]
        messages = list(client.messages(topic)) if topic in known else []
    console.print(f"[bold]6.[/] and {len(messages)} messages in the topic {topic!r}; the last of them:")
    if messages:
        console.print_json((messages[-1].value or b"null").decode(), indent=None)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
