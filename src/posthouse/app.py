"""The composition root: settings → storage → broker → listeners. The only place that knows them all."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from posthouse.broker.broker import Broker
from posthouse.broker.cluster_usage import NO_OTHERS
from posthouse.broker.key_index.files import DiskFiles, IndexFiles
from posthouse.descriptors import RESERVE, allowed_descriptors, share_out
from posthouse.listener_settings import Address, ListenerSettings
from posthouse.loaded_settings import LoadedSettings
from posthouse.model.clock import Clock, SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.model.scopes import Scope
from posthouse.model.usage import Use
from posthouse.protocols.amqp.mapping.attributes import read_attributes
from posthouse.protocols.amqp.predeclared import PREDECLARED
from posthouse.protocols.budget import Budget
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.protocols.gate import SECONDS_TO_PROVE, Gate
from posthouse.protocols.kafka.consumer_protocol import ConsumerProtocol
from posthouse.protocols.listener import Connection, Listener
from posthouse.protocols.listening import ListeningSockets
from posthouse.protocols.loop_delay import LoopDelay
from posthouse.protocols.membership import Membership
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.protocols.relay import Relay
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.protocols.served import ServedListener, ServedListeners
from posthouse.protocols.tls import Certificates, OfferedCertificates
from posthouse.protocols.transfer import Transfer
from posthouse.settings import MIB, Settings
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.tracing.tracing import check_tracing_installed, tracing_of_environment

if TYPE_CHECKING:
    from posthouse.protocols.admin.metrics.otlp_metrics import OtlpMetrics
    from posthouse.webhooks.pushing import Pushing

log = logging.getLogger(__name__)


_MOST_INFLIGHT = 1024 * MIB
_SWEEP_SECONDS = 1.0
_HANDOVER_SECONDS = 0.5
"""How long connections that are to go to another broker may take to end."""
_ABORT_SECONDS = 2.0
"""How long connections that were closed at once have for what they do last."""
_CERTIFICATE_SECONDS = 5.0
"""How often the certificate files are checked for changes."""


class App:
    """One broker with its listeners, in the running event loop. Started once, stopped once."""

    may_give_up_start: Final = False
    """The recovery of local files is finished first."""

    def __init__(
        self,
        settings: Settings | LoadedSettings,
        *,
        clock: Clock | None = None,
        storage: Storage | None = None,
        front_ends: Sequence[FrontEnd] = FRONT_ENDS,
        membership: Membership | None = None,
        relay: Relay | None = None,
        transfer: Transfer | None = None,
        peer_traffic: PeerTraffic | None = None,
        seconds_to_prove: float = SECONDS_TO_PROVE,
    ) -> None:
        """Settings that are not loaded were made by the program that starts the broker. `membership`,
        `relay`, `transfer` and `peer_traffic` are of a broker that shares its storage."""
        loaded = LoadedSettings.of_program(settings) if isinstance(settings, Settings) else settings
        loaded.settings.check()
        self._membership = membership
        settings = _affordable(loaded.settings, relays=relay is not None)
        clock = clock or SystemClock()
        self.settings = settings
        self._clock = clock
        cluster = NO_OTHERS if membership is None else membership.usage
        self._gate = Gate(
            clock,
            total=settings.max_connections,
            per_address=settings.max_connections_per_address,
            seconds_to_prove=seconds_to_prove,
            seconds_to_wait=settings.offender_wait_seconds,
            cluster=cluster,
        )
        self._certificates = Certificates.of(settings)
        self._tracing = tracing_of_environment() if settings.tracing else None
        self.broker = Broker(
            storage or _storage(settings, clock),
            settings,
            clock,
            ConsumerProtocol(),
            read_attributes,
            predeclared_exchanges=PREDECLARED,
            limit_connections=self._gate.limit,
            tracer=self._tracing,
            cluster=cluster,
            index_files=_index_files(settings) if storage is None else None,
        )
        self.broker.namespace_scopes.end_sessions = self._end_sessions
        self._following: asyncio.Task[None] | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._budget = Budget(settings.inflight_bytes or _affordable_bytes())
        self._loop_delay = LoopDelay()
        self._served = ServedListeners()
        backend = Backend(
            broker=self.broker,
            settings=settings,
            setting_sources=loaded.sources,
            budget=self._budget,
            gate=self._gate,
            requests=RequestMetrics(),
            loop_delay=self._loop_delay,
            listeners=self._served,
            membership=membership,
            relay=relay,
            transfer=transfer,
            peer_traffic=peer_traffic,
        )
        self._describe = {front_end.protocol: front_end.describe for front_end in front_ends}
        _serve(front_ends, backend)
        self._otlp_metrics = _otlp_metrics(backend)
        self.listeners: dict[str, Address] = {}
        """The addresses of the listeners, by the name of the setting, once started."""

    async def start(self) -> None:
        await self.open()
        if self._membership is None or self._membership.coordinates:
            await self._coordinate()
        await self.serve()

    async def open(self) -> None:
        """Start the broker, without clients."""
        try:
            await self.broker.start()
        except BaseException:
            await self._stop_exporters()
            raise

    async def _coordinate(self) -> None:
        try:
            await self.broker.coordinate()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop a broker that has no clients."""
        try:
            await self.broker.stop()
        finally:
            await self._stop_exporters()

    async def serve(self, sockets: Mapping[str, ListeningSockets] | None = None) -> None:
        """After `open`: accept clients. `sockets` are bound already, by the name of the setting. They belong
        to the app from now on."""
        try:
            for each in self._served:
                protocol = each.settings.protocol
                is_optional = protocol.tls_is_optional
                tls: Certificates | OfferedCertificates | None = None
                if self._certificates is not None and (each.has_tls or is_optional):
                    offered = protocol.offered_protocol
                    tls = self._certificates if offered is None else self._certificates.offering(offered)
                if sockets is None:
                    self.listeners[each.name] = await each.listener.start(
                        each.settings.address, tls, setting=each.name, tls_is_optional=is_optional
                    )
                else:
                    self.listeners[each.name] = each.listener.start_on(
                        sockets[each.name], tls, tls_is_optional=is_optional
                    )
            if self._tracing is not None:
                self._tracing.start()
        except BaseException:
            for each in self._served:
                each.listener.close()
            await self.close()
            raise
        self._sweep()
        self._loop_delay.start()
        self.broker.webhooks.start_pushing(self._pushing)
        if self._otlp_metrics is not None:
            self._otlp_metrics.start()
        if self._certificates is not None:
            self._following = asyncio.create_task(self._certificates.follow(_CERTIFICATE_SECONDS))

    def _pushing(self) -> "Pushing":
        # Only brokers with webhooks need it.
        from posthouse.webhooks.pushing import Pushing

        return Pushing(self.broker, self.settings, self._clock)

    def _sweep(self) -> None:
        """Once a second: close connections that are too slow or hold too much memory."""
        self._gate.sweep()
        self._budget.sweep()
        for each in self._served:
            each.listener.sweep()
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def uses(self, least: float) -> Iterator[Use]:
        """What clients use of limits that hold over all brokers, if it is at least that part of a limit."""
        access = self.broker.access
        return chain(self._gate.uses(least), access.sessions.uses(least), access.quotas.uses(least))

    def reload_certificates(self) -> None:
        """Reload changed certificates at once, instead of at the next check."""
        if self._certificates is not None:
            asyncio.get_running_loop().run_in_executor(None, self._certificates.reload_changed)

    @property
    def descriptions(self) -> list[str]:
        """Which clients connect where, in words, without TLS listeners. Once started."""
        return [
            self._describe[each.settings.protocol](self.listeners[each.name], self.settings)
            for each in self._served
            if not each.has_tls
        ]

    @property
    def connections(self) -> list[Connection]:
        return [connection for _, connection in self._served.connections()]

    def listener(self, name: str) -> Listener | None:
        """The listener whose address is the setting of this name."""
        return next((each.listener for each in self._served if each.name == name), None)

    async def ended(self) -> None:
        """Never returns: it does not end by itself."""
        await asyncio.get_running_loop().create_future()

    def ready(self) -> dict[str, object]:
        """What the ready line says besides the addresses."""
        return {}

    async def step_down(self) -> None:
        """Another broker is to coordinate: end the connections of clients that only the coordinator serves.
        Other clients stay connected. Raises as `Broker.stop_coordinating`."""
        self.broker.step_down()
        coordinated = [each.listener for each in self._served if each.is_coordinated]
        await asyncio.gather(*(each.hand_over(_HANDOVER_SECONDS) for each in coordinated))
        await self.broker.stop_coordinating()

    async def _end_sessions(self, scope: Scope) -> None:
        """Another broker is to serve the namespaces of the scope."""
        served = [each.listener for each in self._served if each.serves_namespaces]
        await asyncio.gather(*(each.hand_over_scope(scope, _HANDOVER_SECONDS) for each in served))

    async def stop(self, *, at_once: bool = False) -> None:
        """Accept no more connections, answer the requests in flight, then close the storage.

        With `at_once` all connections are closed immediately, and nothing is answered any more.
        """
        if self._following is not None:
            self._following.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._loop_delay.stop()
        if self._otlp_metrics is not None:
            self._otlp_metrics.stop()
        for each in self._served:
            if at_once:
                each.listener.abort()
            else:
                each.listener.close()
        await self.broker.webhooks.stop_pushing()
        self.broker.wake_readers()
        seconds = _ABORT_SECONDS if at_once else self.settings.shutdown_seconds
        await asyncio.gather(*(each.listener.drained(seconds) for each in self._served))
        await self.close()

    async def _stop_exporters(self) -> None:
        """At the same time: each waits a few seconds for a collector that does not answer."""
        exporters = [] if self._tracing is None else [self._tracing.stop()]
        if self._otlp_metrics is not None:
            exporters.append(self._otlp_metrics.close())
        await asyncio.gather(*exporters)


def check_app(settings: Settings) -> None:
    """Raises InvalidConfig if an app of these settings lacks certificates, or a package of an extra."""
    Certificates.of(settings)
    if settings.tracing:
        check_tracing_installed()
    if settings.webhook_ca is not None:
        from posthouse.webhooks.connecting import check_authorities

        check_authorities(settings.webhook_ca)
    if _wants_otlp_metrics():
        _otlp_metrics_type()


def _serve(front_ends: Sequence[FrontEnd], backend: Backend) -> None:
    listeners = backend.settings.listeners
    served = [front_end.protocol for front_end in front_ends]
    for each in listeners:
        if each.protocol not in served:
            raise InvalidConfig(f"{each.name} is set, but this broker does not serve {each.protocol.label}")
    for front_end in front_ends:
        connections = front_end.connect(backend)
        for each in listeners:
            if each.protocol == front_end.protocol:
                own = connections(each)
                listener = Listener(
                    each.protocol.label,
                    own,
                    backend.gate,
                    may_answer=_may_answer(front_end, backend.broker, backend.membership),
                    passing=_passing(front_end, each, own, backend.membership),
                )
                backend.listeners.add(
                    ServedListener(
                        settings=each,
                        listener=listener,
                        is_coordinated=front_end.is_coordinated,
                        serves_namespaces=front_end.serves_namespaces,
                    )
                )


def _may_answer(
    front_end: FrontEnd, broker: Broker, membership: Membership | None
) -> Callable[[], bool] | None:
    """None where it always may."""
    if membership is None:
        return None
    if front_end.serves_namespaces:
        # Clients of other brokers may be transferred, also if this one is cut off from the database.
        return lambda: membership.may_serve() or not any(True for _ in broker.namespaces.held)
    return membership.may_read if front_end.reads_cut_off else membership.may_coordinate


def _passing(
    front_end: FrontEnd, listener: ListenerSettings, own: ConnectionFactory, membership: Membership | None
) -> Callable[[], ConnectionFactory | None] | None:
    if membership is None or front_end.pass_on is None:
        return None
    passed_on = front_end.pass_on(listener, own)
    return lambda: None if membership.coordinates else passed_on


def _otlp_metrics(backend: Backend) -> "OtlpMetrics | None":
    """Where OpenTelemetry's own variables ask for it."""
    if not _wants_otlp_metrics():
        return None
    from posthouse.protocols.admin.metrics.collector import MetricsCollector

    return _otlp_metrics_type()(MetricsCollector(backend))


def _wants_otlp_metrics() -> bool:
    wanted = [each.strip() for each in os.environ.get("OTEL_METRICS_EXPORTER", "").split(",")]
    return "otlp" in wanted and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def _otlp_metrics_type() -> "type[OtlpMetrics]":
    try:
        # An optional extra, which takes long to import.
        from posthouse.protocols.admin.metrics.otlp_metrics import OtlpMetrics
    except ImportError as error:
        raise InvalidConfig(
            "OTEL_METRICS_EXPORTER is otlp, and OpenTelemetry is not installed: "
            f'pip install "posthouse[tracing]" ({error})'
        ) from None
    return OtlpMetrics


def _affordable(settings: Settings, *, relays: bool) -> Settings:
    """Limit connections and open segments to the descriptors that the system allows.

    In a cluster, a connection may take a second one, to another broker.
    """
    limit = allowed_descriptors()
    usable = RESERVE + (limit - RESERVE) // 2 if relays else limit
    shared = share_out(usable, max_connections=settings.max_connections, open_files=settings.open_files)
    if shared.connections < settings.max_connections:
        log.warning(
            "max_connections is %d, but the system allows this process %d open files: %d clients may "
            "connect. Raise the limit (ulimit -n, or LimitNOFILE of systemd), or lower max_connections",
            *(settings.max_connections, limit, shared.connections),
        )
    return replace(
        settings,
        max_connections=shared.connections,
        open_files=shared.files,
    )


def _affordable_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory // 4, _MOST_INFLIGHT)


def _index_files(settings: Settings) -> IndexFiles | None:
    if settings.memory:
        return None
    # As below.
    from posthouse.storage.files.system.disk import OsDisk

    return DiskFiles(OsDisk(), str(settings.data))


def _storage(settings: Settings, clock: Clock) -> Storage:
    if settings.memory:
        return MemoryStorage(clock, producer_expiry_ms=settings.producer_expiry_ms)
    # Not needed by brokers in memory, which tests start in large numbers.
    from posthouse.storage.files.engine import FileStorage

    return FileStorage(
        settings.data,
        clock=clock,
        defaults=settings.topic_defaults(),
        journal_bytes=settings.journal_bytes,
        open_files=settings.open_files,
        producer_expiry_ms=settings.producer_expiry_ms,
    )
