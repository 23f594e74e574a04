"""The remoting protocol: name server and broker on one port."""
