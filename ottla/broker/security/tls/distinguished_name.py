"""The subject of a certificate in the form of RFC 2253, as Java's `X500Principal.getName()` writes it.

    SEQUENCE { SET { C=DE } SET { O=Ottla } SET { CN=alice } }   ->   CN=alice,O=Ottla,C=DE

The last part comes first. RFC 2253 names nine types of attributes. For any other type Java writes its number, and its
value as the hexadecimal digits of the encoding: `1.2.840.113549.1.9.1=#1605...`. ACLs of Kafka contain these names, so
they must be the same byte for byte. Python's `getpeercert` returns neither order nor encoding, so this module parses.
"""

from __future__ import annotations

from collections.abc import Iterator

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
UTF8, PRINTABLE, T61, IA5, GENERAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
TEXTS = frozenset((UTF8, PRINTABLE, T61, IA5, GENERAL, BMP))
"""Types of values that Java writes as text: it reads all of them as UTF-8, whatever their encoding is."""
SEQUENCE, SET, OBJECT_IDENTIFIER, VERSION = 0x30, 0x31, 0x06, 0xA0
_ESCAPED = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """The subject's name in a certificate (DER). Raises ValueError for anything else."""
    try:
        outer = next(_elements(certificate, 0, len(certificate)))
        body = next(_elements(certificate, outer[1], outer[2]))
        fields = [field for field in _elements(certificate, body[1], body[2]) if field[0] != VERSION]
        tag, start, end, _ = fields[4]  # serial number, algorithm, issuer, validity, subject
        if tag != SEQUENCE:
            raise ValueError("the subject is no sequence")
        parts = [_relative_name(certificate, part[1], part[2]) for part in _elements(certificate, start, end)]
    except (IndexError, StopIteration):
        raise ValueError("not a certificate") from None
    return ",".join(reversed(parts))


def _elements(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(tag, start of the content, its end, start of the element) of each element of `data[start:end]`."""
    while start < end:
        begin, tag, length = start, data[start], data[start + 1]
        start += 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length without an end, or beyond all bounds")
            length = int.from_bytes(data[start : start + count])
            start += count
        if tag & 0x1F == 0x1F or start + length > end:
            raise ValueError("an element that is cut off")
        yield tag, start, start + length, begin
        start += length


def _relative_name(data: bytes, start: int, end: int) -> str:
    return "+".join(_attribute(data, pair[1], pair[2]) for pair in _elements(data, start, end))


def _attribute(data: bytes, start: int, end: int) -> str:
    kind, value = _elements(data, start, end)
    if kind[0] != OBJECT_IDENTIFIER:
        raise ValueError("an attribute without a type")
    number = _object_identifier(data[kind[1] : kind[2]])
    keyword = KEYWORDS.get(number)
    if keyword is None or value[0] not in TEXTS:
        return f"{keyword or number}=#{data[value[3] : value[2]].hex()}"
    return f"{keyword}={_escaped(data[value[1] : value[2]].decode('utf-8', 'replace'))}"


def _object_identifier(content: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if value >> 64:
            raise ValueError("an object identifier beyond all bounds")
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else "\\00" if letter == "\0" else letter for letter in text)
    inner = escaped.strip(" \r")
    if len(inner) == len(escaped):
        return escaped
    lead = len(escaped) - len(escaped.lstrip(" \r"))
    before, after = (escaped, "") if not inner else (escaped[:lead], escaped[lead + len(inner) :])
    return "".join(f"\\{blank}" for blank in before) + inner + "".join(f"\\{blank}" for blank in after)
