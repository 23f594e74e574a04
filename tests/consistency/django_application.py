"""A Django application: `python -m tests.consistency.django_application URL`."""

import sys

import django
from django.conf import settings

from posthouse.consistency import NoTransaction, Outbox
from tests.consistency.django_databases import database_of


def main(url: str) -> None:
    settings.configure(DATABASES={"default": database_of(url)})
    django.setup()
    from django.db import connection, transaction

    try:
        with transaction.atomic():
            Outbox().publish(connection, "orders", b"rolled back", key=b"k")
            raise LookupError
    except LookupError:
        pass
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (1, 'tea')")
        Outbox().publish(connection, "orders", b"committed", key=b"k")
    try:
        Outbox().publish(connection, "orders", b"alone", key=b"k")
    except NoTransaction:
        return
    raise AssertionError("published without a transaction")


main(sys.argv[1])
