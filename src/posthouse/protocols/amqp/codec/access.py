"""access.request and its answer: of AMQP 0-8, which clients of 0-9-1 may still send and RabbitMQ answers."""

from typing import ClassVar, Final

from pamqp.base import Frame


class Request(Frame):
    # In the order of the wire.
    __slots__: ClassVar[list[str]] = [  # noqa: RUF023
        "realm",
        "exclusive",
        "passive",
        "active",
        "write",
        "read",
    ]

    frame_id: ClassVar[int] = 10
    index: ClassVar[int] = 0x001E000A
    name: ClassVar[str] = "Access.Request"
    synchronous: ClassVar[bool] = True
    valid_responses: ClassVar[list[str]] = ["Access.RequestOk"]

    _realm = "shortstr"
    _exclusive = "bit"
    _passive = "bit"
    _active = "bit"
    _write = "bit"
    _read = "bit"

    def __init__(self, realm: str = "") -> None:
        self.realm = realm
        self.exclusive = self.passive = self.active = self.write = self.read = False


class RequestOk(Frame):
    __slots__: ClassVar[list[str]] = ["ticket"]

    frame_id: ClassVar[int] = 11
    index: ClassVar[int] = 0x001E000B
    name: ClassVar[str] = "Access.RequestOk"
    synchronous: ClassVar[bool] = False
    valid_responses: ClassVar[list[str]] = []

    _ticket = "short"

    def __init__(self, ticket: int = 1) -> None:
        self.ticket = ticket


OLD_METHODS: Final[dict[int, type[Frame]]] = {Request.index: Request, RequestOk.index: RequestOk}
