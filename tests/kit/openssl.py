"""Two things that OpenSSL's clients can send and Python's `ssl` has no call for.

The handle of OpenSSL's connection stands behind the head of Python's object; where it cannot be reached (another
Python, OpenSSL linked in another way) the calls return False.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
import sys
from typing import Final

KEY_UPDATE_REQUESTED: Final = 1


def ask_for_new_keys(tls: ssl.SSLObject) -> bool:
    """Send a KeyUpdate that has to be answered (RFC 8446, 4.6.3); whether that was done."""
    return _call(tls, "SSL_key_update", KEY_UPDATE_REQUESTED)


def renegotiate(tls: ssl.SSLObject) -> bool:
    """Begin another handshake on the connection (TLS 1.2 and before); whether that was done."""
    return _call(tls, "SSL_renegotiate")


def _call(tls: ssl.SSLObject, name: str, *arguments: int) -> bool:
    if sys.implementation.name != "cpython":
        return False
    try:
        library = ctypes.CDLL(_ssl.__file__)
        call, shake_hands = getattr(library, name), library.SSL_do_handshake
    except (AttributeError, OSError):
        return False
    at = id(vars(tls)["_sslobj"]) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
    handle = ctypes.c_void_p.from_address(at)
    call.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * len(arguments)]
    shake_hands.argtypes = [ctypes.c_void_p]
    if call(handle, *arguments) != 1:
        return False
    shake_hands(handle)  # writes it; of a renegotiation it then waits for the answer
    return True
