"""A Django application: `python -m tests.consistency.django_application URL`."""

import sys
from urllib.parse import urlsplit

import django
from django.conf import settings

from posthouse.consistency import NoTransaction, Outbox


def main(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    else:
        backend = "postgresql" if parts.scheme == "postgresql" else "mysql"
        if backend == "mysql":
            import pymysql

            pymysql.version_info = (2, 2, 1, "final", 0)  # Django asks for mysqlclient by its version
            pymysql.install_as_MySQLdb()
        database = {
            "ENGINE": f"django.db.backends.{backend}",
            "NAME": parts.path[1:],
            "HOST": str(parts.hostname),
            "PORT": str(parts.port),
            "USER": str(parts.username),
        }
    settings.configure(DATABASES={"default": database})
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
