"""A configuration that would leave a listener open to everybody by mistake does not start."""

from itertools import product
from pathlib import Path

import pytest

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Address, Authentication, ClientCertificates, Settings

HERE = (Address("127.0.0.1", 0), Address("localhost", 0), Address("::1", 0), Address("127.9.9.9", 0))
BEYOND = (Address("0.0.0.0", 0), Address("::", 0), Address("192.0.2.1", 0), Address("broker.example", 0))
SOME = (None, HERE[0], BEYOND[0])
TLS = {"tls_certificate": Path("certificate.pem"), "tls_key": Path("key.pem")}


def starts(settings: Settings) -> bool:
    try:
        settings.check()
    except InvalidConfig:
        return False
    return True


@pytest.mark.parametrize("authentication", Authentication)
@pytest.mark.parametrize("allow_open", [False, True])
@pytest.mark.parametrize("allow_cleartext", [False, True])
def test_every_combination(authentication: Authentication, allow_open: bool, allow_cleartext: bool) -> None:
    count = 0
    for kafka, kafka_tls, amqp, amqp_tls, admin, admin_tls in product(SOME, repeat=6):
        settings = Settings(
            kafka=kafka,
            kafka_tls=kafka_tls,
            amqp=amqp,
            amqp_tls=amqp_tls,
            admin=admin,
            admin_tls=admin_tls,
            authentication=authentication,
            allow_open_network=allow_open,
            allow_cleartext_passwords=allow_cleartext,
            **TLS,  # type: ignore[arg-type]
        )
        listeners = [
            each for each in (kafka, kafka_tls, amqp, amqp_tls, admin, admin_tls) if each is not None
        ]
        is_known = authentication is Authentication.REQUIRED
        anybody_may = any(each in BEYOND for each in listeners) and not is_known and not allow_open
        # Kafka clients can prove a password without telling it; AMQP and HTTP clients cannot.
        overheard = (amqp in BEYOND or admin in BEYOND) and is_known and not allow_cleartext
        assert starts(settings) == (bool(listeners) and not anybody_may and not overheard), settings
        count += 1
    assert count == 729


@pytest.mark.parametrize("name", ["kafka", "kafka_tls", "amqp", "amqp_tls", "admin", "admin_tls"])
@pytest.mark.parametrize("address", [*HERE, *BEYOND], ids=str)
def test_what_is_this_machine(name: str, address: Address) -> None:
    settings = Settings(**{"kafka": None, "amqp": None, "admin": None, **TLS, name: address})  # type: ignore[arg-type]
    assert starts(settings) == (address in HERE)


def test_the_sentences() -> None:
    with pytest.raises(InvalidConfig, match="--authentication required, or set --allow-open-network"):
        Settings(kafka=BEYOND[0]).check()
    with pytest.raises(InvalidConfig, match="would send their passwords in the clear"):
        Settings(amqp=BEYOND[0], authentication=Authentication.REQUIRED).check()
    with pytest.raises(InvalidConfig, match="all listeners are off"):
        Settings(kafka=None, amqp=None, admin=None).check()
    with pytest.raises(InvalidConfig, match="needs the settings tls_certificate and tls_key"):
        Settings(kafka_tls=HERE[0]).check()
    with pytest.raises(InvalidConfig, match="needs tls_client_ca"):
        Settings(tls_client_certificates=ClientCertificates.REQUIRED).check()
    with pytest.raises(InvalidConfig, match="at least one user in superusers"):
        Settings(authentication=Authentication.REQUIRED, superusers=()).check()


def test_two_listeners_on_one_address() -> None:
    both = Address("127.0.0.1", 9092)
    with pytest.raises(InvalidConfig, match=r"kafka and amqp are both to listen on 127\.0\.0\.1:9092"):
        Settings(kafka=both, amqp=both).check()
    Settings(kafka=HERE[0], amqp=HERE[0]).check()  # two ports that the system picks
