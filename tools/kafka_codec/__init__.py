"""Writes the Kafka wire codec as straight-line Python from the typed schemas of the package kio.

apis      which APIs and versions
schema    kio's dataclasses, one tree per version
merge     one type for all versions of a message
source    indented lines and precompiled structs
classes   the value types
decoding  bytes to values
encoding  values to bytes
module    one output module per API, and the table of them
"""
