"""Webhooks: what is pushed where by HTTP, with its secrets. `posthouse.webhooks` does the pushing."""
