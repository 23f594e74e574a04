"""Records from segments in the object store of a cluster, read without a broker."""
