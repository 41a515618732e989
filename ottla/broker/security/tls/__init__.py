"""TLS of listeners: key and trust stores, contexts, the names in certificates. No sockets: see `net/tls_layer.py`."""
