"""The shared storage beside the local engine: see bench/cluster/__main__.py."""
