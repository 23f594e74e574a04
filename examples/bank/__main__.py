"""The programs of the bank: `python -m examples.bank PROGRAM`. See README.md beside it."""

import argparse
import logging
import os
import sys
from typing import Final

from examples.bank.accounts import SETTLES, settle
from examples.bank.audit import audit
from examples.bank.consuming import consume
from examples.bank.credits import CREDITS, credit
from examples.bank.messages import RECEIPTS, TRANSFERS
from examples.bank.opening import open_bank
from examples.bank.teller import serve

_PROGRAMS: Final = ("open", "teller", "accounts", "credits", "audit")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.bank", description=__doc__)
    parser.add_argument("program", choices=_PROGRAMS)
    parser.add_argument("--accounts", default="postgresql:///accounts", help="URL of its database")
    parser.add_argument("--credits", default="postgresql:///credits", help="URL of its database")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="HOST:PORT of the broker")
    parser.add_argument("--customers", type=int, default=1000, help="how many come to the teller (1000)")
    parser.add_argument("--seed", type=int, default=os.getpid(), help="of what the customers want")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    if options.program == "open":
        open_bank(options.accounts, options.credits)
    elif options.program == "teller":
        serve(options.accounts, options.customers, options.seed)
    elif options.program == "accounts":
        consume(options.accounts, options.bootstrap, RECEIPTS, SETTLES, settle)
    elif options.program == "credits":
        consume(options.credits, options.bootstrap, TRANSFERS, CREDITS, credit)
    else:
        findings = audit(options.accounts, options.credits)
        print("\n".join(findings) or "the books are right")
        return 1 if findings else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
