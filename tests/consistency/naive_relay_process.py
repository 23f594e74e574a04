"""A relay as people write it: read rows, send them, delete them. Two of them, and each kill, make doubles."""

import sys
import time

import psycopg

from posthouse.client import Client
from posthouse.client.errors import ClientError


def main(url: str, kafka: str) -> None:
    while True:
        try:
            with psycopg.connect(url, autocommit=True) as connection, Client(kafka, timeout=5) as client:
                while True:
                    _send(connection, client)
        except (psycopg.Error, ClientError) as error:
            print(error, file=sys.stderr)
            time.sleep(0.05)


def _send(connection: "psycopg.Connection[tuple[int, bytes, bytes]]", client: Client) -> None:
    rows = connection.execute(
        "SELECT id, message_key, value FROM posthouse_outbox ORDER BY id LIMIT 10"
    ).fetchall()
    with client.producer("orders") as producer:
        for _, key, value in rows:
            producer.send(value, key)
    connection.execute("DELETE FROM posthouse_outbox WHERE id = ANY(%s)", [[row for row, _, _ in rows]])
    time.sleep(0 if rows else 0.02)


main(*sys.argv[1:])
