"""How Spark comes to a broker that wants TLS and logins."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from posthouse.client import Client, Security
from posthouse.client.security import SaslMechanism
from posthouse.spark.errors import WrongOption
from posthouse.spark.options import parse_source
from posthouse.spark.sink_options import SinkOptions
from posthouse.testing import ThreadBroker
from tests.certificates import Authority
from tests.tls_brokers import tls_broker

USERS = {"admin": "4dmin's own", "bob": "b0b's own"}
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ENCRYPTED = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
SHA_512 = SaslMechanism.SCRAM_SHA_512


def parsed(**more: str) -> Security:
    return parse_source(BASE | more, streaming=False).security


@pytest.mark.parametrize(
    ("given", "security"),
    [
        ({"kafka.security.protocol": "plaintext"}, Security()),
        ({"kafka.security.protocol": "SSL"}, Security(tls=True)),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/ca.pem"},
            Security(tls=True, ca=Path("/ca.pem")),
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/ca.pem",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.certificate.location": "/me.pem",
                "kafka.ssl.key.location": "/key.pem",
                "kafka.ssl.endpoint.identification.algorithm": "https",
            },
            Security(tls=True, ca=Path("/ca.pem"), certificate=Path("/me.pem"), key=Path("/key.pem")),
        ),
        (
            ENCRYPTED | {"kafka.sasl.username": "u", "kafka.sasl.password": "p"},
            Security(tls=True, user="u", password="p", mechanism=SHA_512),
        ),
        (
            ENCRYPTED | {"kafka.sasl.jaas.config": f'{SCRAM} required username="u" password="p;\\"=q";'},
            Security(tls=True, user="u", password='p;"=q', mechanism=SHA_512),
        ),
        (
            {
                "KAFKA.security.protocol": "sasl_plaintext",
                "kafka.sasl.mechanism": "plain",
                "kafka.sasl.jaas.config": f"kafkashaded.{PLAIN} required\n  username='u'\n  password=p;",
            },
            Security(user="u", password="p", mechanism=SaslMechanism.PLAIN),
        ),
    ],
)
def test_what_options_say(given: dict[str, str], security: Security) -> None:
    assert parsed(**given) == security
    assert SinkOptions.parse({"kafka.bootstrap.servers": "h:1", **given}).security == security


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kafka.security.protocol": "SASL_SSL"}, "'kafka.sasl.mechanism' is missing"),
        (ENCRYPTED, "'kafka.sasl.username' is missing"),
        (ENCRYPTED | {"kafka.sasl.mechanism": "GSSAPI"}, "one of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN"),
        (ENCRYPTED | {"kafka.sasl.jaas.config": "s3cret"}, "is one login module, such as"),
        (ENCRYPTED | {"kafka.sasl.jaas.config": f"{SCRAM} required password=s3cret;"}, "needs username"),
        (ENCRYPTED | {"kafka.sasl.jaas.config": "x.OtherModule required a=s3cret;"}, "not OtherModule"),
        (
            ENCRYPTED | {"kafka.sasl.jaas.config": f"{PLAIN} required username=u password=s3cret;"},
            "is not for",
        ),
        (
            {"kafka.security.protocol": "PLAINTEXT", "kafka.sasl.password": "s3cret"},
            "has no effect with kafka.security.protocol PLAINTEXT; set that to SASL_SSL",
        ),
        ({"kafka.ssl.ca.location": "/s3cret"}, "set that to SSL or SASL_SSL"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/x.jks"},
            "only read with kafka.ssl.truststore.type PEM",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""},
            "'kafka.ssl.endpoint.identification.algorithm' is one of HTTPS",
        ),
    ],
)
def test_what_is_wrong_is_said_without_secrets(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(WrongOption, match=sentence) as caught:
        parsed(**given)
    assert "s3cret" not in str(caught.value)


def test_the_environment_counts_where_options_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_USER", "u")
    monkeypatch.setenv("POSTHOUSE_PASSWORD", "p")
    monkeypatch.setenv("POSTHOUSE_CA", "/ca.pem")
    assert parsed() == Security(user="u", password="p", ca=Path("/ca.pem"))
    assert parsed(**{"kafka.security.protocol": "PLAINTEXT"}) == Security()


def test_secrets_go_to_executors_and_into_no_text() -> None:
    options = parse_source(
        BASE | ENCRYPTED | {"kafka.sasl.username": "u", "kafka.sasl.password": "s3cret"}, streaming=False
    )
    assert pickle.loads(pickle.dumps(options)).security.password == "s3cret"
    assert "s3cret" not in repr(options)


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[ThreadBroker]:
    with tls_broker(authority, USERS) as running:
        yield running


@pytest.mark.xdist_group("spark")
def test_there_and_back(
    spark: SparkSession, guarded: ThreadBroker, authority: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    with Client(guarded.kafka, security=Security(user="admin", password=USERS["admin"])) as client:
        for topic in ("in", "out"):
            client.create_topic(topic, partitions=2)
        with client.producer("in") as producer:
            for number in range(100):
                producer.send(b"%d" % number, partition=number % 2)

    def options(user: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": guarded.kafka_tls,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": f'{SCRAM} required username="{user}" password="{USERS[user]}";',
            "kafka.ssl.ca.location": str(authority.file),
        }

    frame = spark.read.format("posthouse").options(**options("admin"), subscribe="in").load()
    frame.explain(True)
    frame.write.format("posthouse").options(**options("admin"), topic="out").mode("append").save()
    written = spark.read.format("posthouse").options(**options("admin"), subscribe="out").load()
    assert sorted(int(row.value) for row in written.collect()) == list(range(100))
    with pytest.raises(PySparkException, match=r"there is no topic|you may not"):
        spark.read.format("posthouse").options(**options("bob"), subscribe="in").load().collect()
    printed = "".join(capfd.readouterr())
    assert "Physical Plan" in printed
    assert USERS["admin"] not in printed and USERS["bob"] not in printed
