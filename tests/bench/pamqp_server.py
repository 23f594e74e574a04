"""The server's side of a connection, by pamqp: it answers what it is asked, and notes it."""

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pamqp import base, commands, frame, header

FRAME_MAX = 131_072
ANSWERS: Mapping[str, base.Frame] = {
    "Connection.StartOk": commands.Connection.Tune(2047, FRAME_MAX, 60),
    "Connection.Open": commands.Connection.OpenOk(),
    "Channel.Open": commands.Channel.OpenOk(),
    "Exchange.Declare": commands.Exchange.DeclareOk(),
    "Queue.Declare": commands.Queue.DeclareOk("queue", 17, 0),
    "Queue.Bind": commands.Queue.BindOk(),
    "Queue.Purge": commands.Queue.PurgeOk(3),
    "Basic.Qos": commands.Basic.QosOk(),
    "Confirm.Select": commands.Confirm.SelectOk(),
}


@dataclass
class Server:
    answers: Mapping[str, base.Frame] = field(default_factory=lambda: ANSWERS)
    heard: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def say(self, command: base.Frame) -> None:
        """Unasked, on the first channel."""
        self._connection.sendall(frame.marshal(command, 1))

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            self._connection = connection
            data = b""
            while received := connection.recv(65536):
                data += received
                while data:
                    size, channel, heard = frame.unmarshal(data)
                    data = data[size:]
                    self.heard.append(heard)
                    if isinstance(heard, header.ProtocolHeader):
                        answer: base.Frame | None = commands.Connection.Start()
                    else:
                        answer = self.answers.get(heard.name)
                    if answer is not None:
                        connection.sendall(frame.marshal(answer, channel))
