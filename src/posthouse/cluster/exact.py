"""Reads exactly as many bytes from a socket as were agreed on: the next ones belong to another protocol."""

import asyncio
import socket


async def receive(sock: socket.socket, size: int) -> bytes:
    """Raises ConnectionError if the other side closes before."""
    loop = asyncio.get_running_loop()
    received = b""
    while len(received) < size:
        more = await loop.sock_recv(sock, size - len(received))
        if not more:
            raise ConnectionResetError("the other side closed the connection")
        received += more
    return received
