"""The RPCs of the service, by what they are about."""
