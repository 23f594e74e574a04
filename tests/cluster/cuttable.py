"""A way to PostgreSQL that a test can cut, for one broker of several."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import conninfo


class CuttableDatabase:
    def __init__(self, url: str) -> None:
        given = conninfo.conninfo_to_dict(url)
        self._host, self._port = str(given["host"]), int(str(given["port"]))
        self._login, self._database = given["user"], given["dbname"]
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumping: set[asyncio.Task[None]] = set()
        self._is_cut = False

    async def start(self) -> str:
        """Returns the address of the same database, by this way."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{self._login}@127.0.0.1:{port}/{self._database}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, back}
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(_pump(source, target))
            self._pumping.add(task)
            task.add_done_callback(self._pumping.discard)

    def cut(self) -> None:
        self._is_cut = True
        for each in self._writers:
            each.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self._is_cut = False

    async def stop(self) -> None:
        self.cut()
        self._server.close()
        await asyncio.gather(*self._pumping, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            target.write(data)
    except ConnectionError:
        target.transport.abort()
    else:
        target.close()


@asynccontextmanager
async def cuttable(url: str) -> AsyncIterator[tuple[CuttableDatabase, str]]:
    database = CuttableDatabase(url)
    address = await database.start()
    try:
        yield database, address
    finally:
        await database.stop()
