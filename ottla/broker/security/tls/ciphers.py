"""Translation of Java's names for protocol versions and cipher suites, as in Kafka's keys, into OpenSSL's.

TLS 1.2: each suite by its name. TLS 1.3 has its own suites, which Python's `ssl` can only switch on and off together
(`SSLContext.set_ciphersuites` comes with Python 3.15): if none of them is named, TLS 1.3 is off, as in Java; if some
are named, all are on, and a warning is logged. Suites without forward secrecy are not among OpenSSL's defaults but may
be configured. DHE is not offered: it needs parameters that no administrator configures.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TLS_1_3_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
"""Java knows these names, and has them switched off, too."""


def _table() -> Iterator[tuple[str, str]]:
    for java, openssl in (("ECDHE_ECDSA", "ECDHE-ECDSA-"), ("ECDHE_RSA", "ECDHE-RSA-"), ("RSA", "")):
        for bits, digest in ((256, "SHA384"), (128, "SHA256")):
            yield f"TLS_{java}_WITH_AES_{bits}_GCM_{digest}", f"{openssl}AES{bits}-GCM-{digest}"
        if openssl:
            yield f"TLS_{java}_WITH_CHACHA20_POLY1305_SHA256", f"{openssl}CHACHA20-POLY1305"
        for bits in (256, 128):
            digest = "SHA384" if bits == 256 and openssl else "SHA256"
            yield f"TLS_{java}_WITH_AES_{bits}_CBC_{digest}", f"{openssl}AES{bits}-{digest}"
            yield f"TLS_{java}_WITH_AES_{bits}_CBC_SHA", f"{openssl}AES{bits}-SHA"


TLS_1_2_SUITES = dict(_table())
"""OpenSSL's names by Java's."""


class Choice(NamedTuple):
    """Lowest and highest version, OpenSSL's list of suites for TLS 1.2 (empty: its default), and warnings."""

    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    suites: str
    warnings: tuple[str, ...]


def choose(versions: Sequence[str], suites: Sequence[str]) -> Choice:
    """The choice that `ssl.enabled.protocols` and `ssl.cipher.suites` make.

    Raises ValueError("ssl.enabled.protocols" or "ssl.cipher.suites", reason).
    """
    unknown = [name for name in versions if name not in VERSIONS and name not in OLD_VERSIONS]
    if unknown:
        raise ValueError("ssl.enabled.protocols", f"{unknown[0]} is none of {', '.join(VERSIONS)}")
    allowed = {name for name in versions if name in VERSIONS} if versions else set(VERSIONS)
    if not allowed:
        raise ValueError(
            "ssl.enabled.protocols", f"must name one of {', '.join(VERSIONS)}: older versions are not safe"
        )
    old = [name for name in versions if name in OLD_VERSIONS]
    warnings: tuple[str, ...] = ()
    if old:
        verbs = "is not safe, and stays off" if len(old) == 1 else "are not safe, and stay off"
        warnings = (f"ssl.enabled.protocols: {', '.join(old)} {verbs}",)
    if not suites:
        return Choice(*_bounds(allowed), "", warnings)
    for name in suites:
        if name not in TLS_1_2_SUITES and name not in TLS_1_3_SUITES:
            offered = ", ".join((*TLS_1_3_SUITES, *TLS_1_2_SUITES))
            raise ValueError("ssl.cipher.suites", f"{name} is not offered; these are: {offered}")
    new = [name for name in suites if name in TLS_1_3_SUITES]
    older = [TLS_1_2_SUITES[name] for name in suites if name in TLS_1_2_SUITES]
    if not new:
        allowed.discard("TLSv1.3")
    elif "TLSv1.3" in allowed and len(new) < len(TLS_1_3_SUITES):
        others = [name for name in TLS_1_3_SUITES if name not in new]
        on = f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} on, too"
        warnings += (f"ssl.cipher.suites: Python cannot switch off single suites of TLS 1.3, so {on}",)
    if not older:
        allowed.discard("TLSv1.2")
    if not allowed:
        raise ValueError("ssl.cipher.suites", f"has no suite of {', '.join(versions)}")
    return Choice(*_bounds(allowed), ":".join(older), warnings)


def _bounds(names: set[str]) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    versions = [VERSIONS[name] for name in names]
    return min(versions), max(versions)
