"""TLS: the broker's certificate, and names in client certificates."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posthouse.model.errors import InvalidConfig
from posthouse.settings import ClientCertificates, Settings

log = logging.getLogger(__name__)

_VERIFY = {
    ClientCertificates.OFF: ssl.CERT_NONE,
    ClientCertificates.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}


class Certificates:
    """`context` is replaced after a change; existing connections keep the old one."""

    def __init__(self, certificate: Path, key: Path, clients: ClientCertificates, ca: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._clients = clients
        self._ca = ca
        self._loaded = self._versions()
        self._offered: dict[str, ssl.SSLContext] = {}
        self.context = self._made()

    @classmethod
    def of(cls, settings: Settings) -> "Certificates | None":
        if settings.tls_certificate is None or settings.tls_key is None:
            return None
        return cls(
            settings.tls_certificate,
            settings.tls_key,
            settings.tls_client_certificates,
            settings.tls_client_ca,
        )

    async def follow(self, seconds: float) -> None:
        """Check for changes periodically, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.reload_changed)

    def reload_changed(self) -> bool:
        """Reload changed files; returns whether there were any. An invalid certificate is logged, and the old
        one stays."""
        try:
            versions = self._versions()
            if versions == self._loaded:
                return False
            self._loaded = versions
            # New contexts, not changes of those in use: a handshake could get the new certificate and the old
            # key.
            contexts = {each: self._made(each) for each in list(self._offered)}
            self.context = self._made()
            self._offered = contexts
        except InvalidConfig as error:
            log.error(
                "TLS certificate %s: not reloaded, the old one stays in use: %s", self._certificate, error
            )
            return False
        log.info("TLS certificate %s: reloaded", self._certificate)
        return True

    def _versions(self) -> list[tuple[int, int, int]]:
        files = [self._certificate, self._key, *([self._ca] if self._ca else [])]
        try:
            return [(found.st_mtime_ns, found.st_size, found.st_ino) for found in map(os.stat, files)]
        except OSError as error:
            raise InvalidConfig(f"{error.filename} cannot be read: {error.strerror}") from None

    def offering(self, protocol: str) -> "OfferedCertificates":
        """The same certificates, also after changes, for clients that may ask for this protocol by ALPN."""
        if protocol not in self._offered:
            self._offered[protocol] = self._made(protocol)
        return OfferedCertificates(self._offered_context, protocol)

    def _offered_context(self, protocol: str) -> ssl.SSLContext:
        return self._offered[protocol]

    def _made(self, protocol: str | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.verify_mode = _VERIFY[self._clients]
        if protocol is not None:
            context.set_alpn_protocols([protocol])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            if self._ca is not None:
                context.load_verify_locations(self._ca)
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"no TLS with the certificate in {self._certificate} and the key in {self._key}: {error}"
            ) from None


class OfferedCertificates:
    """Certificates for one protocol of ALPN. Clients that do not ask for any are served as well."""

    def __init__(self, context_for: Callable[[str], ssl.SSLContext], protocol: str) -> None:
        self._context_for = context_for
        self._protocol = protocol

    @property
    def context(self) -> ssl.SSLContext:
        """Replaced after a change."""
        return self._context_for(self._protocol)


def _no_password() -> str:
    raise ValueError("the key has a password; the broker needs one without")


def name_of(transport: asyncio.BaseTransport) -> str | None:
    """The common name in the verified certificate of a client."""
    certificate: dict[str, Any] | None = transport.get_extra_info("peercert")
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None
