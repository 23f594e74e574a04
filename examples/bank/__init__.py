"""A bank of two services with a database each: money moves between them by messages, and none is lost.

`accounts` takes money from an account and publishes a transfer, in one transaction of its database. `credits`
gets the transfer, puts the money into an account of its own database, and publishes a receipt, once, however
often the transfer comes. `accounts` gets the receipt, and pays back what could not be credited.
"""
