"""`python -m bench.grpc`: unary calls a second, beside grpc.aio. The load is a Go program, so it needs Go."""

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


def _rate(load: Path, server: str, in_flight: int) -> float:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.grpc.servers", server], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        command = [str(load), f"127.0.0.1:{port}", str(in_flight), str(SECONDS)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
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
            rates: dict[str, list[float]] = {each: [] for each in SERVERS}
            for _ in range(ROUNDS):  # in turn, so that a busy machine hits both
                for server in SERVERS:
                    rates[server].append(_rate(load, server, in_flight))
            ours, other = (max(rates[each]) for each in SERVERS)
            times = f"{ours / other:.1f} times"
            print(f"{in_flight} in flight: ours {ours:,.0f}/s, grpc.aio {other:,.0f}/s: {times}")
            print(f"  all rounds: {rates}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
