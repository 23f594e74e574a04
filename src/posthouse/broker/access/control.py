"""Access control: users, access keys, ACLs, quotas and the audit log of one broker."""

import asyncio
import hmac
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

from posthouse.broker.access.access_keys import AccessKeys
from posthouse.broker.access.acls import Acls
from posthouse.broker.access.audit import LOGIN, Audit
from posthouse.broker.access.guard import AclGuard, DecisionCache, Guard, OpenGuard, host_of
from posthouse.broker.access.principal import Principal
from posthouse.broker.access.proven_users import ProvenUsers
from posthouse.broker.access.quotas import Quotas
from posthouse.broker.access.scram import ScramServer
from posthouse.broker.access.secret import Secret
from posthouse.broker.access.sessions import Sessions
from posthouse.broker.access.users import Users
from posthouse.broker.changes import SerializedChanges
from posthouse.broker.cluster_usage import NO_OTHERS, ClusterUsage
from posthouse.model.clock import Clock
from posthouse.model.errors import InvalidConfig, LoginFailed, Unavailable
from posthouse.model.networks import owner_of_peer
from posthouse.model.scram import Mechanism, RandomBytes
from posthouse.settings import ClientCertificates, Settings
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

_PRIVATE = 0o077


class AccessControl:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        clock: Clock,
        random: RandomBytes = os.urandom,
        *,
        cluster: ClusterUsage = NO_OTHERS,
    ) -> None:
        self._settings = settings
        self._random = random
        self.is_required = settings.must_log_in
        """Whether every client has to log in."""
        self._storage = storage
        self.secret: Secret | None = None
        """Known once it is stored, if clients have to log in."""
        self.sessions = Sessions(settings.max_connections_per_user, cluster)
        self.key_sessions = Sessions(0)
        """Connections by access key. They count for their users, in `sessions`."""
        changes = SerializedChanges()
        self.access_keys = AccessKeys(
            storage,
            clock,
            random,
            is_user=lambda name: self.users.get(name) is not None,
            changes=changes,
            removed=self.key_sessions.disconnect,
        )
        self.users = Users(
            storage,
            random,
            min_iterations=settings.scram_min_iterations,
            changed=self.sessions.disconnect,
            changes=changes,
            belongings=self.access_keys,
        )
        self._has_certificates = settings.tls_client_certificates is not ClientCertificates.OFF
        self.proven_users = ProvenUsers(
            self.users, self._key_of_proven_users, takes_certificates=self._has_certificates
        )
        self.acls = Acls(storage)
        self.quotas = Quotas(storage, clock, cluster)
        self.audit = Audit(settings.audit_path, clock)
        self.logins: Counter[str] = Counter()
        """By protocol."""
        self.login_failures: Counter[str] = Counter()
        self._answers: WeakValueDictionary[tuple[str, str], DecisionCache] = WeakValueDictionary()

    def load(self) -> None:
        """Load users, ACLs and quotas. Nothing is stored."""
        if self.is_required:
            self._use_secret(Secret.found(self._storage, self._storage.take_state(Space.SECRETS)))
        self.users.load()
        self.access_keys.load()
        self.acls.load()
        self.quotas.load()
        self.audit.open()

    async def coordinate(self) -> None:
        """Store what is missing: the secret, the password of the administrator. Raises InvalidConfig if login
        is required and no user exists."""
        if self.is_required and self.secret is None:
            self._use_secret(await Secret.create(self._storage, self._random))
        await self._set_admin_password()
        if self.is_required and not len(self.users) and not self._has_certificates:
            raise InvalidConfig(
                "authentication is required and there is no user who could log in; write a password into "
                "a file that only you can read, and start with --admin-password-file FILE"
            )

    def follow_secret(self, state: Mapping[bytes, bytes]) -> None:
        """The broker that coordinates has stored the secret; `state` is the content of `Space.SECRETS`."""
        if self.is_required:
            self._use_secret(Secret.found(self._storage, state))

    def _use_secret(self, secret: Secret | None) -> None:
        self.secret = secret
        if secret is not None:
            self.users.decoys.key = secret.key("users who do not exist")

    def key(self, purpose: str) -> bytes:
        """For codes that only this broker can make, now and after a restart. Where logins are not required
        anybody could: then codes find mistakes."""
        return (
            hmac.digest(b"", purpose.encode(), "sha256") if self.secret is None else self.secret.key(purpose)
        )

    def _key_of_proven_users(self) -> bytes:
        # A member may serve before it has read the secret: then no other broker confirms its digests.
        return self._random(32) if self.secret is None else self.secret.key("users of other brokers")

    async def _set_admin_password(self) -> None:
        file = self._settings.admin_password_file
        if file is None:
            return
        password = await asyncio.to_thread(_password_in, file)
        admin = self._settings.superusers[0]
        try:
            await self.users.check_password(admin, password)
        except LoginFailed:
            await self.users.set_password(admin, password)

    def close(self) -> None:
        self.users.close()
        self.audit.close()

    def guard(self, principal: Principal | None, peer: str, protocol: str) -> Guard:
        """The guard of one connection. `principal` is None if login is not required."""
        if principal is None:
            return OpenGuard(self.audit, peer, protocol)
        answers = self._answers.setdefault((principal.name, host_of(peer)), DecisionCache())
        return AclGuard(
            principal,
            self.acls,
            self.audit,
            peer,
            protocol,
            is_super=principal.name in self._settings.superusers,
            answers=answers,
        )

    async def log_in(self, name: str, password: str, peer: str) -> Principal:
        """Log in with a plain password. Raises LoginFailed."""
        known, source = self.users.get(name), owner_of_peer(peer)
        try:
            await self.users.check_password(name, password, source)
        except LoginFailed:
            await self.refresh()
            if self.users.get(name) is known:
                raise
            await self.users.check_password(name, password, source)
        return Principal(name)

    async def refresh(self) -> None:
        """Before a login is refused: another broker may just have changed users. Storage limits how often it
        asks, so that guesses do not flood it."""
        with suppress(Unavailable):  # users that are known can log in all the same
            await self._storage.refresh_definitions()

    def scram(self, mechanism: Mechanism) -> ScramServer:
        return ScramServer(mechanism, self.users.verifier, self._random)

    def record_login(
        self, name: str, peer: str, protocol: str, mechanism: str, failure: LoginFailed | None = None
    ) -> None:
        counter = self.logins if failure is None else self.login_failures
        counter[protocol] += 1
        self.audit.record(
            Principal(name),
            peer,
            protocol,
            LOGIN,
            mechanism,
            allowed=failure is None,
            detail="" if failure is None else str(failure),
        )


def _password_in(file: Path) -> str:
    try:
        if file.stat().st_mode & _PRIVATE:
            raise InvalidConfig(f"other users can read the password file {file}; run: chmod 600 {file}")
        password = file.read_text().rstrip("\r\n")
    except OSError as error:
        raise InvalidConfig(f"the password file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"the password in {file} is not UTF-8") from None
    if not password:
        raise InvalidConfig(f"the password file {file} is empty")
    return password
