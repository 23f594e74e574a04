"""What operators see of a shared storage: by HTTP, in metrics, with `status`, and by a probe."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from posthouse.cli.shared_facts import shared_facts
from posthouse.testing import AsyncBroker
from tests.cli.programs import inside
from tests.postgres import MIGRATED, migrated_server, new_database


async def test_a_shared_storage_by_http_in_metrics_and_with_status(url: str, tmp_path: Path) -> None:
    objects = f"file://{tmp_path}/objects"
    async with AsyncBroker(database=url, objects=objects) as broker, httpx.AsyncClient() as http:
        admin = f"http://{broker.admin}"
        topic = {"name": "large", "settings": {"latency": "object"}}
        assert (await http.post(f"{admin}/v1/topics", json=topic)).status_code < 300
        record = {"records": [{"value": "x" * 1000}]}
        assert (await http.post(f"{admin}/v1/topics/large/records", json=record)).status_code < 300

        found = (await http.get(f"{admin}/v1/storage")).json()
        assert (found["writable"], found["reasons"], found["unwritten_bytes"]) == (True, [], 0)
        shared = found["shared"]
        commits = shared["database"]["calls"]["commit"]
        assert commits["count"] > 0 and 0 < commits["p50_ms"] <= commits["p99_ms"]
        assert shared["objects"]["calls"]["put"]["count"] == 1
        assert (shared["database"]["away_seconds"], shared["objects"]["away_seconds"]) == (None, None)
        assert shared["tail_bytes"] > 0
        assert shared["cache"]["disk_bytes"] is None

        metrics = (await http.get(f"{admin}/metrics")).text.splitlines()
        assert 'posthouse_object_call_duration_seconds_count{operation="put"} 1' in metrics
        assert "posthouse_database_away_seconds 0" in metrics
        assert any(
            each.startswith('posthouse_database_call_duration_seconds_sum{operation="commit"}')
            for each in metrics
        )
        assert (await http.get(f"{admin}/health/ready")).status_code == 200

        done = await asyncio.to_thread(inside, "status", admin=broker.admin)
        assert done.returncode == 0
        facts = {line.split("  ")[0]: line for line in done.stdout.splitlines() if line}
        assert "commits p50" in facts["database"] and "0 failures" in facts["database"]
        assert "puts p50" in facts["objects"]
        assert "of newest records" in facts["in memory"]
        assert "in time" in facts["consolidation"]
        assert "disk" not in facts
        done = await asyncio.to_thread(inside, "status", "--json", admin=broker.admin)
        assert json.loads(done.stdout)["storage"]["shared"]["objects"]["calls"]["put"]["count"] == 1


def test_facts_of_a_storage_in_trouble() -> None:
    calls = {"count": 9, "failures": 3, "p50_ms": 2.0, "p99_ms": 40.0}
    shared = {
        "database": {"away_seconds": 12.3, "calls": {"commit": calls}},
        "objects": {"away_seconds": None, "calls": {}},
        "tail_bytes": 1024,
        "cache": {"hits": 3, "misses": 1, "disk_hits": 1, "memory_bytes": 2048, "disk_bytes": 4096},
        "consolidation": {"lag_seconds": 75.0, "segments": 1, "bytes": 1, "damaged_logs": 1},
        "free_slots": 2,
        "doomed_objects": 1,
    }
    assert dict(shared_facts(shared)) == {
        "database": "AWAY for 12 s; commits p50 2.0 ms, p99 40.0 ms; 3 failures",
        "objects": "0 failures",
        "in memory": "1.0 KiB of newest records, 2.0 KiB of blocks, 4.0 KiB on disk, 75% hits",
        "consolidation": "75 s late, 1 log DAMAGED",
        "room": "2 of 16 slots free, 1 object to delete",
    }


async def test_a_broker_with_a_storage_of_its_own() -> None:
    async with AsyncBroker() as broker, httpx.AsyncClient() as http:
        found = (await http.get(f"http://{broker.admin}/v1/storage")).json()
        assert found == {"writable": True, "reasons": [], "unwritten_bytes": 0, "shared": None}
        assert "posthouse_database" not in (await http.get(f"http://{broker.admin}/metrics")).text


async def test_the_answer_to_a_probe_says_that_the_database_is_away(tmp_path: Path) -> None:
    with migrated_server() as server, new_database(server, MIGRATED) as url:
        async with (
            AsyncBroker(database=url, objects=f"file://{tmp_path}/objects") as broker,
            httpx.AsyncClient(base_url=f"http://{broker.admin}") as http,
        ):
            assert (await http.get("/health/ready")).json() == {"status": "ok", "reasons": []}
            server.kill()
            told = await _until(http, lambda answer: answer["status"] == "unready")
            assert any("the lease cannot be renewed" in each for each in told["reasons"])
            server.start()
            await _until(http, lambda answer: answer["status"] == "ok")


async def _until(http: httpx.AsyncClient, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            answer: dict[str, Any] = (await http.get("/health/ready")).json()
            if is_so(answer):
                return answer
            await asyncio.sleep(0.1)
