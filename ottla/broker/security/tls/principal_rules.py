"""`ssl.principal.mapping.rules`: the user name for a certificate's subject (Kafka's `SslPrincipalMapper`, KIP-371).

    RULE:^CN=(.*?),OU=ops.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name counts; DEFAULT is the name itself. `$1` means the contents of the
first group, or, if there is no such group, the text `$1`. As in Kafka, every match of the pattern is replaced: `.*`
matches twice, the whole name and the empty end.

Patterns run on RE2, which needs linear time in the length of the name, since names come from clients. Features that
only Java's expressions have (look-ahead, back-references) are refused at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MAX_PATTERN_LENGTH = 1024
MAX_RULES = 100
MAX_MEMORY_BYTES = 1 << 20

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BETWEEN = re.compile(r"\s*(?:,|$)\s*")

Rule = Callable[[str], "str | None"]


class NoRuleApplies(Exception):
    """No rule matches this subject."""


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raises ValueError with what is wrong."""
        self._rules: list[Rule] = []
        text, position = text.strip(), 0
        while position < len(text):
            if text.startswith("DEFAULT", position):
                self._rules.append(str)
                position += len("DEFAULT")
            elif found := _RULE.match(text, position):
                self._rules.append(_rule(*found.groups()))
                position = found.end()
            between = _BETWEEN.match(text, position)
            if between is None:
                raise ValueError(f"{text[position : position + 60]!r} is neither DEFAULT nor RULE:PATTERN/REPLACEMENT/")
            position = between.end()
        if len(self._rules) > MAX_RULES:
            raise ValueError(f"has more than {MAX_RULES} rules")

    def name_of(self, subject: str) -> str:
        """The name that the first matching rule makes. Raises NoRuleApplies."""
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {subject[:200]!r}")


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    import re2  # a start without rules does not need it

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise ValueError(f"a pattern has {len(pattern)} characters; {MAX_PATTERN_LENGTH} are the most")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        compiled: Any = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"the pattern {pattern!r} cannot be used (RE2): {said}") from None
    parts = _parts(replacement, compiled.groups)

    def apply(subject: str) -> str | None:
        if compiled.fullmatch(subject) is None:
            return None
        name, position = "", 0
        for found in compiled.finditer(subject):
            name += subject[position : found.start()]
            name += "".join(part if isinstance(part, str) else found.group(part) or "" for part in parts)
            position = found.end()
        name += subject[position:]
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return apply


def _parts(replacement: str, groups: int) -> list[str | int]:
    """A replacement as texts and numbers of groups. Raises ValueError."""
    parts: list[str | int] = []
    position = 0
    while position < len(replacement):
        letter = replacement[position]
        position += 1
        if letter == "\\":
            parts.append(replacement[position : position + 1])
            position += 1
            continue
        digits = re.match(r"[0-9]{1,9}", replacement[position:]) if letter == "$" else None
        if letter != "$":
            parts.append(letter)
        elif digits is None:
            raise ValueError(f"{replacement!r}: $ must be followed by the number of a group, or be written as \\$")
        else:
            number = int(digits[0][0])
            length = 1
            if number > groups:  # literal in Kafka, except for a pattern without groups: Java refuses that
                if not groups:
                    raise ValueError(f"{replacement!r}: the pattern has no group {number}")
                parts.append(f"${digits[0]}")
                length = len(digits[0])
            else:
                while length < len(digits[0]) and number * 10 + int(digits[0][length]) <= groups:
                    number = number * 10 + int(digits[0][length])
                    length += 1
                parts.append(number)
            position += length
    return parts
