"""TLS of listeners: key and trust stores, contexts, who a certificate names. No sockets: `net/tls.py` has those."""
