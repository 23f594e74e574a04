"""`python -m bench.grpc.servers ours|grpc.aio`: echoes, and says on which port."""

import asyncio
import sys
from functools import partial

import grpc.aio
import uvloop

from posthouse.model.clock import SystemClock
from posthouse.protocols.budget import Budget
from posthouse.protocols.gate import Gate
from posthouse.protocols.grpc.calls import UnaryCall
from posthouse.protocols.grpc.connection import GrpcConnection
from posthouse.protocols.grpc.methods import Methods
from posthouse.protocols.grpc.server import GrpcServer
from posthouse.protocols.listener import Listener
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.settings import Address

PATH = "/bench/echo"
_MIB = 1024 * 1024


def _echo(call: UnaryCall, request: bytes) -> None:
    call.connection.prove()
    call.metadata.get("x-mq-client-id")
    call.answer(request)


async def _ours() -> int:
    methods = Methods()
    methods.unary(PATH, _echo)
    server = GrpcServer(
        methods,
        protocol="bench",
        budget=Budget(256 * _MIB),
        requests=RequestMetrics(),
        is_behind=lambda: False,
        now_ms=lambda: 0,
        buffer_bytes=8 * _MIB,
    )
    listener = Listener("bench", partial(GrpcConnection, server, None), Gate(SystemClock(), total=10))
    return (await listener.start(Address("127.0.0.1", 0))).port


async def _answered(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    return request


async def _grpc_aio() -> int:
    server = grpc.aio.server()
    handlers = {"echo": grpc.unary_unary_rpc_method_handler(_answered)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
    port: int = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _running.append(server)
    return port


_running: list[grpc.aio.Server] = []


async def main(which: str) -> None:
    print(await (_ours() if which == "ours" else _grpc_aio()), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        uvloop.run(main(sys.argv[1]))
    else:
        asyncio.run(main(sys.argv[1]))
