"""One connection to one broker: frames, correlation, versions, timeouts, login. Blocking, for one thread.

Requests may be pipelined; answers are in the order of requests.
"""

import socket
import ssl
from collections import deque
from struct import Struct
from typing import TypeVar, cast

from posthouse import __version__
from posthouse.client.addresses import Node
from posthouse.client.authenticator import ClientAuthenticator
from posthouse.client.errors import (
    UNSUPPORTED_VERSION,
    BrokerSilent,
    BrokerUnreachable,
    ClientError,
    IncompatibleBroker,
)
from posthouse.client.security import OPEN
from posthouse.client.tls import refusal
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY, decode_response_header, request_frame
from posthouse.protocols.kafka.codec.primitives import Buffer, DecodeError, Message
from posthouse.protocols.kafka.codec.registry import APIS, FIRST_OWN_KEY, Api

CLIENT_NAME = "posthouse"
MAX_FRAME = 256 * 1024 * 1024
_MAX_BUFFERS = 512
_SIZE = Struct(">i")
_TLS_ALERT = b"\x15\x03"
_ERROR = Struct(">h")

# By name, because comparing types would load the codec of every API.
_BY_REQUEST = {f"{api.name}Request": api for api in APIS.values()}

T = TypeVar("T", bound=Message)


class BrokerConnection:
    def __init__(
        self,
        node: Node,
        *,
        timeout: float,
        connect_timeout: float | None = None,
        authenticator: ClientAuthenticator | None = None,
    ) -> None:
        authenticator = authenticator or ClientAuthenticator(OPEN)
        self.node = node
        self._timeout = timeout
        self._next_correlation = 0
        self._unanswered: deque[tuple[int, Api]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        connected = _connect(node, timeout if connect_timeout is None else connect_timeout)
        self._socket = authenticator.encrypt(connected, node)
        self._is_stranger = authenticator.is_anonymous
        try:
            self._versions = self._ask_versions()
            authenticator.log_in(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    @property
    def peer(self) -> str:
        """The address that the host name was resolved to."""
        host: str = self._socket.getpeername()[0]
        return host.partition("%")[0]

    def ask(self, request: Message, answer: type[T], *, wait: float = 0.0) -> T:
        """Send and wait for the answer; `wait` is how long the broker may delay it on purpose."""
        self.send(request)
        return self.receive(answer, wait=wait)

    def send(self, request: Message) -> None:
        api = _BY_REQUEST[type(request).__name__]
        self._check_version(api)
        self._send(api, request)

    def receive(self, answer: type[T], *, wait: float = 0.0) -> T:
        """The answer to the oldest unanswered request."""
        api, body, start = self._receive(wait)
        try:
            return cast("T", api.decode_response(body, start))
        except DecodeError as error:
            raise IncompatibleBroker(
                f"{self.node} sent a {api.name} answer that cannot be read ({error}); use a newer broker"
            ) from None

    def _send(self, api: Api, request: Message) -> None:
        correlation = self._next_correlation
        self._next_correlation = (correlation + 1) & 0x7FFFFFFF
        chunks = request_frame(
            api.key, api.max_version, correlation, CLIENT_NAME, api.encode_request(request)
        )
        self._socket.settimeout(self._timeout)
        try:
            _send_all(self._socket, chunks)
        except TimeoutError:
            raise self._silent() from None
        except OSError as error:
            raise self._lost(error) from None
        self._unanswered.append((correlation, api))

    def _receive(self, wait: float) -> tuple[Api, memoryview, int]:
        self._socket.settimeout(self._timeout + wait)
        try:
            prefix = _read(self._socket, _SIZE.size)
            if prefix.startswith(_TLS_ALERT):
                raise IncompatibleBroker(
                    f"the broker at {self.node} requires TLS; give --ca FILE with the authority of its "
                    "certificate, or --tls if the system trusts it"
                )
            (size,) = _SIZE.unpack(prefix)
            if not _SIZE.size <= size <= MAX_FRAME:
                raise self._not_kafka()
            frame = memoryview(_read(self._socket, size))
        except TimeoutError:
            raise self._silent() from None
        except (OSError, EOFError) as error:
            raise self._lost(error) from None
        expected, api = self._unanswered.popleft()
        self._is_stranger = self._is_stranger and api.key == API_VERSIONS_KEY
        try:
            correlation, start = decode_response_header(api.key, api.max_version, frame)
        except DecodeError:
            raise self._not_kafka() from None
        if correlation != expected:
            raise self._not_kafka()
        return api, frame, start

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        api = APIS[API_VERSIONS_KEY]
        self._send(
            api,
            ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=__version__),
        )
        _, body, start = self._receive(0.0)
        # A broker that does not support our version answers in the oldest one, with the error code first.
        if len(body) >= start + 2 and _ERROR.unpack_from(body, start)[0] == UNSUPPORTED_VERSION:
            raise IncompatibleBroker(
                f"the broker at {self.node} is too old for this client; use one that speaks Kafka 4.2"
            )
        try:
            response = cast("ApiVersionsResponse", api.decode_response(body, start))
        except DecodeError:
            raise self._not_kafka() from None
        return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def _check_version(self, api: Api) -> None:
        low, high = self._versions.get(api.key, (0, -1))
        if high < 0 and api.key >= FIRST_OWN_KEY:
            raise IncompatibleBroker(
                f"this needs {api.name}, which Kafka does not have, and the broker at {self.node} neither; "
                "use a newer Posthouse"
            )
        if not low <= api.max_version <= high:
            has = f"has only versions {low} to {high}" if high >= 0 else "does not have it"
            raise IncompatibleBroker(
                f"this needs version {api.max_version} of Kafka's {api.name} and the broker at {self.node} "
                f"{has}; use a newer broker"
            )

    def _silent(self) -> BrokerSilent:
        return BrokerSilent(
            f"the broker at {self.node} did not answer in {self._timeout:g} s; look at its log, or try again"
        )

    def _lost(self, error: Exception) -> ClientError:
        untrusted = refusal(error, self.node)
        if untrusted is not None:
            return untrusted
        reason = getattr(error, "strerror", None) or str(error) or "it was closed"
        return BrokerUnreachable(
            f"the connection to the broker at {self.node} was lost ({reason}); "
            f"{self._advice()}look at its log, or try again"
        )

    def _advice(self) -> str:
        """Advice for a client that the broker disconnects without an answer."""
        if self._is_stranger and self._versions:
            return "give --user if it requires a login, "
        if not self._versions and isinstance(self._socket, ssl.SSLSocket):
            return "give a certificate that it trusts with --certificate if it requires one, "
        if not self._versions:
            return "give --tls or --ca FILE if the address is for TLS, "
        return ""

    def _not_kafka(self) -> IncompatibleBroker:
        return IncompatibleBroker(
            f"what answers at {self.node} does not speak the Kafka protocol; "
            "give another address with --bootstrap"
        )


def _connect(node: Node, timeout: float) -> socket.socket:
    try:
        connected = socket.create_connection((node.host, node.port), timeout)
    except socket.gaierror:
        raise BrokerUnreachable(
            f"there is no host {node.host!r}; correct the name, or give another address with --bootstrap"
        ) from None
    except OSError:
        raise BrokerUnreachable(
            f"no broker answers at {node}; start one with 'posthouse serve' or give --bootstrap"
        ) from None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _send_all(connected: socket.socket, chunks: list[Buffer]) -> None:
    for first in range(0, len(chunks), _MAX_BUFFERS):
        group = chunks[first : first + _MAX_BUFFERS]
        if isinstance(connected, ssl.SSLSocket):
            connected.sendall(b"".join(group))
            continue
        sent = connected.sendmsg(group)
        for chunk in group:
            if sent < len(chunk):
                connected.sendall(memoryview(chunk)[sent:])
            sent = max(sent - len(chunk), 0)


def _read(connected: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        got = connected.recv_into(view[done:])
        if not got:
            raise EOFError("the broker closed it")
        done += got
    return data
