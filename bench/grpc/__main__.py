"""`python -m bench.grpc`: unary calls a second, beside grpc.aio, and the server's processor time for each.

The load is a Go program, so it needs Go. On a busy machine the time is what can be compared.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

SECONDS: Final = 4.0
ROUNDS: Final = 3
IN_FLIGHT: Final = (1, 64)
SERVERS: Final = ("ours", "grpc.aio")


def _seconds(process: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(load: Path, server: str, in_flight: int) -> tuple[float, float]:
    """Calls a second, and microseconds for each."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.grpc.servers", server], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        command = [str(load), f"127.0.0.1:{port}", str(in_flight), str(SECONDS)]
        before = _seconds(process.pid)
        rate = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return rate, (_seconds(process.pid) - before) / (rate * SECONDS) * 1e6
    finally:
        process.kill()
        process.wait()


def main() -> int:
    go = shutil.which("go")
    if go is None:
        print("Go is needed to build the load: install it, or put it on the PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        load = Path(directory) / "load"
        source = Path(__file__).parent / "load.go"
        subprocess.run([go, "build", "-o", str(load), str(source)], check=True)
        for in_flight in IN_FLIGHT:
            found: dict[str, list[tuple[float, float]]] = {each: [] for each in SERVERS}
            for _ in range(ROUNDS):  # in turn, so that a busy machine hits both
                for server in SERVERS:
                    found[server].append(_measure(load, server, in_flight))
            for server, rounds in found.items():
                rates = ", ".join(f"{rate:,.0f}" for rate, _ in rounds)
                least = min(each for _, each in rounds)
                print(
                    f"{in_flight} in flight, {server}: {rates} calls/s, {least:.0f} µs of processor for each"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
