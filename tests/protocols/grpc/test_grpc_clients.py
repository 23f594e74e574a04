"""grpcio, as it is, against the server."""

import asyncio

import grpc
import grpc.aio
import pytest

from tests.protocols.grpc.served import DEADLINE, serving


async def test_unary() -> None:
    async with serving() as served, grpc.aio.insecure_channel(served.target) as channel:
        for name in ("echo", "slow_echo"):
            call = channel.unary_unary(f"/test/{name}")
            assert await call(b"hello", timeout=DEADLINE) == b"hello"
            assert await call(b"", timeout=DEADLINE) == b""
