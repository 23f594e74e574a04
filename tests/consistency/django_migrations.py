"""Django's `migrate`, with an application in the working directory: `python -m … URL shop [MIGRATION]`."""

import sys

import django
from django.conf import settings
from django.core.management import call_command

from tests.consistency.django_databases import database_of


def main(url: str, *target: str) -> None:
    sys.path.insert(0, "")
    settings.configure(DATABASES={"default": database_of(url)}, INSTALLED_APPS=["shop"])
    django.setup()
    call_command("migrate", *target, verbosity=0)


main(*sys.argv[1:])
