"""HTTP/2 (RFC 9113) of a server, sans-IO: it knows bytes and streams, neither sockets nor gRPC."""
