"""A small synchronous client for the Kafka protocol, on our own codec.

    with Client("127.0.0.1:9092") as client:
        with client.producer("greetings") as producer:
            producer.send(b"hello")
        for message in client.messages("greetings"):
            print(message.value)

With TLS and a login:

    security = Security(ca=Path("ca.pem"), user="alice", password=…)
    with Client("broker.example:9093", security=security) as client: ...

Not for many threads at once: one client belongs to one thread.
"""

from posthouse.client.client import Client
from posthouse.client.errors import ClientError
from posthouse.client.positions import Start
from posthouse.client.reading import Message
from posthouse.client.security import Security

__all__ = ["Client", "ClientError", "Message", "Security", "Start"]
