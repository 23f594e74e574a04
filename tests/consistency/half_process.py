"""An application that is killed between its steps: `python -m tests.consistency.half_process DATABASE ADMIN
FIRST COUNT DIES`.

It stores the orders FIRST … in SQLite, each with a half message. DIES says where in the last one it kills
itself: prepared, stored (and not committed), committed (in the database), or answered, which is not at all.
"""

import os
import signal
import sqlite3
import sys

from posthouse.consistency import Decision, HalfMessage, HalfMessages


def was_committed(path: str, message: HalfMessage) -> Decision:
    """An answer that stays true: an order that is not there can never come."""
    with sqlite3.connect(path, timeout=30) as connection:
        connection.execute("INSERT OR IGNORE INTO orders VALUES (?, 'void')", [message.name])
        [[state]] = connection.execute("SELECT state FROM orders WHERE id = ?", [message.name]).fetchall()
    return Decision.ROLL_BACK if state == "void" else Decision.COMMIT


def main(path: str, admin: str, first: str, count: str, dies: str) -> None:
    def die_if(place: str, number: int) -> None:
        if dies == place and number == last:
            os.kill(os.getpid(), signal.SIGKILL)

    last = int(first) + int(count) - 1
    with HalfMessages(
        admin, group="shop", was_committed=lambda message: was_committed(path, message), patience=60
    ) as half:
        for number in range(int(first), last + 1):
            name = f"order-{number}"
            with half.prepared("orders", name, key=name, name=name, check_after=4):
                die_if("prepared", number)
                connection = sqlite3.connect(path, timeout=30)
                connection.execute("INSERT INTO orders VALUES (?, 'paid')", [name])
                die_if("stored", number)
                connection.commit()
                connection.close()
                die_if("committed", number)


if __name__ == "__main__":
    main(*sys.argv[1:])
