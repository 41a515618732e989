"""The subject of a certificate, as Java 17's `X500Principal.getName()` printed it of the same certificates."""

from __future__ import annotations

import pytest

from ottla.broker.security.tls.distinguished_name import subject_of

JAVA = [
    (
        "3062310b3009060355040613024445310f300d06035504080c064265726c696e310e300c06035504070c054d69747465"
        "31143012060355040a0c0b4f74746c612c20496e632e310c300a060355040b0c036f7073310e300c06035504030c0561"
        "6c696365",
        "CN=alice,OU=ops,O=Ottla\\, Inc.,L=Mitte,ST=Berlin,C=DE",
    ),
    (
        "306131133011060a0992268993f22c6401191603636f6d31173015060a0992268993f22c64011916076578616d706c65"
        "31123010060a0992268993f22c6401010c027531310f300d06035504090c064d61696e2031310c300a06035504030c03"
        "626f62",
        "CN=bob,STREET=Main 1,UID=u1,DC=example,DC=com",
    ),
    (
        "30263114301206092a864886f70d01090116056140622e63310e300c06035504030c056361726f6c",
        "CN=carol,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    ("301b3119301706035504030c10206c65616420616e6420747261696c20", "CN=\\ lead and trail\\ "),
    ("3011310f300d06035504030c06237368617270", "CN=\\#sharp"),
    ("301e311c301a06035504030c136122622b633c643e653b665c673d6823692f6a", 'CN=a\\"b\\+c\\<d\\>e\\;f\\\\g\\=h\\#i/j'),
    ("301a3118301606035504030c0fc3bc6ec3afe29c9320e697a5e69cac", "CN=ünï✓ 日本"),
    (
        "3039312b300a06035504030c0374776f300c060355040b0c057061727473300f060a0992268993f22c6401010c017a31"
        "0a3008060355040a0c014f",
        "O=O,CN=two+OU=parts+UID=z",
    ),
    (
        "304a310a300806035504030c0178310c300a06035504051303313233310a3008060355042a0c0167310a300806035504"
        "040c0173310a3008060355040c0c0174310a3008060355042e130171",
        "2.5.4.46=#130171,2.5.4.12=#0c0174,2.5.4.4=#0c0173,2.5.4.42=#0c0167,2.5.4.5=#1303313233,CN=x",
    ),
    ("3011310f300d06035504031e060062006d0070", "CN=\\00b\\00m\\00p"),
    ("300e310c300a06035504031403743631", "CN=t61"),
    ("30153113301106035504030c0a6e756c00696e73696465", "CN=nul\\00inside"),
    ("30193117301506035504030c0e6c696e650a627265616b09746162", "CN=line\nbreak\ttab"),
    ("300d310b300906035504030c022020", "CN=\\ \\ "),
    ("30203112301006092b06010401868d1f050c036f776e310a300806035504030c0179", "CN=y,1.3.6.1.4.1.99999.5=#0c036f776e"),
    ("30173115301306035504031c0c000000750000006e00000069", "CN=#1c0c000000750000006e00000069"),
    ("3011310f300d06035504030c060d206372200d", "CN=\\\r\\ cr\\ \\\r"),
]
"""Names in DER (RFC 5280), and what Java made of them."""


def element(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2)
    return bytes([tag]) + length + content


def certificate(subject: bytes, *, version: bytes = b"\xa0\x03\x02\x01\x02") -> bytes:
    """What comes before a subject: version, serial number, algorithm, issuer, validity."""
    body = element(0x30, version, element(0x02, b"\x05"), element(0x30), element(0x30), element(0x30), subject)
    return element(0x30, body)


@pytest.mark.parametrize(("subject", "name"), JAVA)
def test_the_name_is_javas(subject: str, name: str) -> None:
    assert subject_of(certificate(bytes.fromhex(subject))) == name


def test_a_certificate_of_version_1_has_no_field_for_it() -> None:
    subject, name = JAVA[0]
    assert subject_of(certificate(bytes.fromhex(subject), version=b"")) == name


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_what_is_cut_off_is_no_certificate(cut: int) -> None:
    whole = certificate(bytes.fromhex(JAVA[0][0]))
    with pytest.raises(ValueError, match=r"\w"):
        subject_of(whole[: len(whole) - 1 - cut])


@pytest.mark.parametrize(
    "subject",
    [
        b"\x31\x00",  # a set
        b"\x30\x80\x00\x00",  # a length without an end
        b"\x30\x06\x31\x04\x30\x02\x05\x00",  # an attribute without a value
        b"\x30\x88\xff\xff\xff\xff\xff\xff\xff\xff",
        element(0x30, element(0x31, element(0x30, b"\x06\x0c" + b"\xff" * 11 + b"\x01", b"\x0c\x00"))),
    ],
)
def test_a_broken_subject_is_refused(subject: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        subject_of(certificate(subject))
