"""The supported APIs by key: Kafka's, which are generated, and our own.

The module of an API is imported when its codec is first used, so that a client that sends three kinds of
requests does not load sixty.
"""

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import cast

from posthouse.protocols.kafka.codec.generated.table import TABLE
from posthouse.protocols.kafka.codec.own.table import TABLE as OWN_TABLE
from posthouse.protocols.kafka.codec.primitives import Buffer, Message, UnsupportedVersion

_GENERATED = "posthouse.protocols.kafka.codec.generated"
_OWN = "posthouse.protocols.kafka.codec.own"

FIRST_OWN_KEY = 10_000
"""Kafka assigns keys one by one and has not reached a hundred."""


class Api:
    """One API: its versions, and encoders and decoders of requests and responses.

    The codec implements `min_version` to `max_version`; ApiVersions advertises from `advertised_min`. The
    client side uses `max_version` only.
    """

    def __init__(
        self,
        key: int,
        name: str,
        module: str,
        min_version: int,
        max_version: int,
        advertised_min: int,
        flexible_from: int,
        package: str = _GENERATED,
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.advertised_min = advertised_min
        self._module_name = module
        self._package = package
        self._flexible_from = flexible_from

    def __repr__(self) -> str:
        return f"Api({self.key} {self.name} v{self.min_version}-v{self.max_version})"

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self._flexible_from

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(f"{self._package}.{self._module_name}")

    @cached_property
    def request_type(self) -> type[Message]:
        return cast("type[Message]", getattr(self._module, f"{self.name}Request"))

    @cached_property
    def response_type(self) -> type[Message]:
        return cast("type[Message]", getattr(self._module, f"{self.name}Response"))

    @cached_property
    def decode_request(self) -> Callable[[int, memoryview, int], Message]:
        function = getattr(self._module, f"decode_{self._module_name}_request")
        return cast("Callable[[int, memoryview, int], Message]", function)

    @cached_property
    def encode_response(self) -> Callable[[int, Message], list[Buffer]]:
        function = getattr(self._module, f"encode_{self._module_name}_response")
        return cast("Callable[[int, Message], list[Buffer]]", function)

    @cached_property
    def encode_request(self) -> Callable[[Message], list[Buffer]]:
        function = getattr(self._module, f"encode_{self._module_name}_request")
        return cast("Callable[[Message], list[Buffer]]", function)

    @cached_property
    def decode_response(self) -> Callable[[memoryview, int], Message]:
        function = getattr(self._module, f"decode_{self._module_name}_response")
        return cast("Callable[[memoryview, int], Message]", function)


APIS: dict[int, Api] = {row[0]: Api(*row) for row in TABLE} | {
    row[0]: Api(*row, package=_OWN) for row in OWN_TABLE
}


def find_api(api_key: int) -> Api:
    try:
        return APIS[api_key]
    except KeyError:
        raise UnsupportedVersion(f"no API has the key {api_key} here") from None


def decode_request(api_key: int, version: int, buf: memoryview, pos: int) -> Message:
    """The request whose body starts at `pos` and ends with `buf`."""
    return find_api(api_key).decode_request(version, buf, pos)


def encode_response(api_key: int, version: int, response: Message) -> list[Buffer]:
    return find_api(api_key).encode_response(version, response)
