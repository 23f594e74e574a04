"""Connections: how many, what they hold, and who was refused."""

from collections import Counter
from typing import Final

from posthouse.protocols.admin.metrics.family import counter, gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.front_end import Backend

CONNECTIONS: Final = gauge("posthouse_connections", "Connections.", "listener")
PAUSED: Final = gauge(
    "posthouse_paused_connections",
    "Connections that are not read from now (back-pressure).",
    "listener",
)
ACCEPTED: Final = counter("posthouse_connections_accepted_total", "Connections accepted.")
REFUSED: Final = counter("posthouse_connections_refused_total", "Connections refused for want of room.")
EVICTED: Final = counter(
    "posthouse_connections_evicted_total", "Connections closed because they did not log in or send a request."
)
OFFENCES: Final = counter("posthouse_offences_total", "Offences of clients: see the glossary.")
LOGINS: Final = counter("posthouse_logins_total", "Logins that succeeded.", "protocol")
LOGIN_FAILURES: Final = counter("posthouse_login_failures_total", "Logins that failed.", "protocol")
THROTTLES: Final = counter("posthouse_throttles_total", "Times that a quota made a client wait.")
THROTTLED: Final = counter("posthouse_throttled_seconds_total", "Time that quotas made clients wait.")
BUDGET: Final = gauge("posthouse_memory_budget_bytes", "Memory that all connections together may hold.")
USED: Final = gauge("posthouse_memory_budget_used_bytes", "Memory of that budget which is held now.")
FAMILIES: Final = (
    *(CONNECTIONS, PAUSED, ACCEPTED, REFUSED, EVICTED, OFFENCES, LOGINS, LOGIN_FAILURES),
    *(THROTTLES, THROTTLED, BUDGET, USED),
)


async def collect(backend: Backend, samples: Samples) -> None:
    paused: Counter[str] = Counter()
    for served, connection in list(backend.listeners.connections()):
        paused[served.name] += connection.info.is_paused
        await samples.turns.next()
    for served in backend.listeners:
        samples.add(CONNECTIONS, len(served.listener), served.name)
        samples.add(PAUSED, paused[served.name], served.name)
    gate = backend.gate.counters
    samples.add(ACCEPTED, gate.accepted)
    samples.add(REFUSED, gate.refused)
    samples.add(EVICTED, gate.evicted)
    samples.add(OFFENCES, gate.offences)
    access = backend.broker.access
    for protocol, count in sorted(access.logins.items()):
        samples.add(LOGINS, count, protocol)
    for protocol, count in sorted(access.login_failures.items()):
        samples.add(LOGIN_FAILURES, count, protocol)
    samples.add(THROTTLES, access.quotas.throttles)
    samples.add(THROTTLED, access.quotas.throttled_seconds)
    samples.add(BUDGET, backend.budget.limit)
    samples.add(USED, backend.budget.limit - backend.budget.room)
