"""The security options. Names are those of Spark's Kafka source, or librdkafka's.

Without any of them the environment of the driver is used (POSTHOUSE_USER and so on). That is safer: Spark
shows options in plans and logs, but not the environment. No message here repeats a value.
"""

import re
from collections.abc import Callable
from pathlib import Path

from posthouse.client.errors import BadArgument
from posthouse.client.security import SaslMechanism, Security
from posthouse.spark.errors import WrongOption

PROTOCOL = "kafka.security.protocol"
MECHANISM = "kafka.sasl.mechanism"
JAAS = "kafka.sasl.jaas.config"
USER = "kafka.sasl.username"
PASSWORD = "kafka.sasl.password"
CA = "kafka.ssl.ca.location"
CERTIFICATE = "kafka.ssl.certificate.location"
KEY = "kafka.ssl.key.location"
TRUSTSTORE = "kafka.ssl.truststore.location"
TRUSTSTORE_TYPE = "kafka.ssl.truststore.type"
HOST_CHECK = "kafka.ssl.endpoint.identification.algorithm"

SECURITY = (
    PROTOCOL,
    MECHANISM,
    JAAS,
    USER,
    PASSWORD,
    CA,
    CERTIFICATE,
    KEY,
    TRUSTSTORE,
    TRUSTSTORE_TYPE,
    HOST_CHECK,
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES = {
    "PlainLoginModule": (SaslMechanism.PLAIN,),
    "ScramLoginModule": (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512),
}
_JAAS = re.compile(r"\s*(?:[\w$]+\.)*(?P<module>\w+)\s+required\s+(?P<pairs>.*?)\s*;\s*", re.DOTALL)
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"';]+"
_PAIR = re.compile(rf"(?P<name>\w+)\s*=\s*(?P<value>{_QUOTED})", re.DOTALL)

Text = Callable[[str], str | None]


def parse_security(text: Text) -> Security:
    """`text` returns the value of an option, or None. Raises WrongOption."""
    given = {name for name in SECURITY if text(name) is not None}
    try:
        if not given:
            return Security.from_environment()
        protocol = _choice(text, PROTOCOL, _PROTOCOLS) or "PLAINTEXT"
        _check_fit(protocol, given)
        is_encrypted = protocol in ("SSL", "SASL_SSL")
        user, password, mechanism = None, "", SaslMechanism.SCRAM_SHA_256
        if protocol.startswith("SASL"):
            mechanism = SaslMechanism(_choice(text, MECHANISM, tuple(SaslMechanism)) or _missing(MECHANISM))
            user, password = _credentials(text, mechanism)
        return Security(
            tls=is_encrypted,
            ca=_authority(text),
            certificate=_path(text(CERTIFICATE)),
            key=_path(text(KEY)),
            user=user,
            password=password,
            mechanism=mechanism,
        )
    except BadArgument as error:
        raise WrongOption(str(error)) from None


def _check_fit(protocol: str, given: set[str]) -> None:
    """Raises for options that would have no effect: an ignored security option is an error."""
    for name in sorted(given):
        needs = "SSL" if name.startswith("kafka.ssl.") else "SASL" if name.startswith("kafka.sasl.") else ""
        if needs not in protocol:
            raise WrongOption(
                f"the option {name!r} has no effect with {PROTOCOL} {protocol}; set that to "
                f"{'SSL or SASL_SSL' if needs == 'SSL' else 'SASL_SSL or SASL_PLAINTEXT'}, or remove it"
            )


def _credentials(text: Text, mechanism: SaslMechanism) -> tuple[str, str]:
    jaas = text(JAAS)
    if jaas is not None:
        return _from_jaas(jaas, mechanism)
    return text(USER) or _missing(USER), text(PASSWORD) or _missing(PASSWORD)


def _from_jaas(jaas: str, mechanism: SaslMechanism) -> tuple[str, str]:
    found = _JAAS.fullmatch(jaas)
    if found is None:
        raise WrongOption(
            f"the option {JAAS!r} is one login module, such as org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="…" password="…";'
        )
    module = found["module"]
    if module not in _MODULES:
        raise WrongOption(f"the option {JAAS!r} has one of {', '.join(_MODULES)}, not {module}")
    if mechanism not in _MODULES[module]:
        raise WrongOption(f"the option {JAAS!r} names {module}, which is not for {mechanism}")
    pairs = {pair["name"]: _unquoted(pair["value"]) for pair in _PAIR.finditer(found["pairs"])}
    if not pairs.get("username") or not pairs.get("password"):
        raise WrongOption(f"the option {JAAS!r} needs username and password")
    return pairs["username"], pairs["password"]


def _authority(text: Text) -> Path | None:
    _choice(text, HOST_CHECK, ("HTTPS",))
    if text(TRUSTSTORE) is None:
        return _path(text(CA))
    if (text(TRUSTSTORE_TYPE) or "JKS").upper() != "PEM":
        raise WrongOption(
            f"the option {TRUSTSTORE!r} is only read with {TRUSTSTORE_TYPE} PEM; name the authority's "
            f"certificate, in PEM, with {CA}"
        )
    return _path(text(TRUSTSTORE))


def _choice(text: Text, name: str, allowed: tuple[str, ...]) -> str | None:
    value = text(name)
    if value is not None and value.strip().upper() not in allowed:
        raise WrongOption(f"the option {name!r} is one of {', '.join(allowed)}, not {value!r}")
    return None if value is None else value.strip().upper()


def _missing(name: str) -> str:
    raise WrongOption(f"the option {name!r} is missing; with SASL it is needed")


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
