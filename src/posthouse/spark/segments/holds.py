"""Renewing holds. Tasks do it: Spark ends the process that plans a batch query before the query runs."""

import logging
import threading
import time

from posthouse.client import Client
from posthouse.client.errors import ClientError
from posthouse.spark.access import access_of
from posthouse.spark.options import SourceOptions

log = logging.getLogger(__name__)

_RENEWAL_SECONDS = 60.0
"""A hold lasts a quarter of an hour."""
_ANSWER_SECONDS = 10.0

_renewed: dict[bytes, float] = {}
"""When this process has renewed a hold; tasks of one query follow each other in a process."""


def renew(options: SourceOptions, hold: bytes | None) -> None:
    """Renew a hold if it is time, in the background: a task does not wait for a broker that it does not read
    from. If it fails, objects may be deleted: reads notice that."""
    now = time.monotonic()
    if hold is None or now - _renewed.get(hold, float("-inf")) < _RENEWAL_SECONDS:
        return
    for known in [each for each, at in _renewed.items() if now - at > 2 * _RENEWAL_SECONDS]:
        del _renewed[known]
    _renewed[hold] = now
    threading.Thread(target=_renew, args=(options, hold), name="hold", daemon=True).start()


def _renew(options: SourceOptions, hold: bytes) -> None:
    # A client belongs to one thread.
    try:
        with Client(options.bootstrap, timeout=_ANSWER_SECONDS, security=options.security) as client:
            client.renew_hold(hold)
    except ClientError as error:
        log.warning("the objects that this query reads may be deleted before it has read them: %s", error)


def release(options: SourceOptions, hold: bytes) -> None:
    """The objects are read. If this fails, the hold ends by itself."""
    try:
        access_of(options).call_once(lambda client: client.release_hold(hold))
    except ClientError as error:
        log.warning("objects are kept for a quarter of an hour longer than needed: %s", error)
