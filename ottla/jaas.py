"""JAAS entries as Kafka parses them from `sasl.jaas.config`: a login module and its options. Imports nothing of Ottla.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a\\"b" user_bob="c";

The tokens are those of Java's `StreamTokenizer` as Kafka's `JaasConfig` sets it up: quotes of both kinds with Java's
escapes, `//`, `/* */` and `/` comments. An error never shows the text: it contains passwords.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ENTRY = 'a login module, a flag as `required`, options as key="value", and a semicolon'


class JaasEntry(NamedTuple):
    """A login module with its options."""

    login_module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.login_module}, {len(self.options)} options)"

    @property
    def module_name(self) -> str:
        """The last word of the class name: `PlainLoginModule`."""
        return self.login_module.rpartition(".")[2]


class _Token(NamedTuple):
    """A word, or a single character that is not part of one."""

    text: str
    is_word: bool


def parse_jaas(text: str) -> JaasEntry:
    """The one entry of a `sasl.jaas.config`. Raises ValueError with what is wrong, without quoting the text."""
    entries = _entries(list(_tokens(text)))
    if not entries:
        raise ValueError(f"must be a JAAS entry: {_ENTRY}")
    if len(entries) > 1:
        raise ValueError(f"has {len(entries)} login modules; one is wanted")
    return entries[0]


def _entries(tokens: list[_Token]) -> list[JaasEntry]:
    entries = []
    position = 0
    while position < len(tokens):
        module = tokens[position]
        if not module.is_word:
            raise ValueError(f"must begin with the name of a login module: {_ENTRY}")
        if position + 1 >= len(tokens) or tokens[position + 1].text.upper() not in _FLAGS:
            raise ValueError(f"has no flag (`required`) after its login module: {_ENTRY}")
        options: dict[str, str] = {}
        position += 2
        while position < len(tokens) and tokens[position] != _Token(";", False):
            option = tokens[position : position + 3]
            if len(option) < 3 or not option[0].is_word or option[1] != _Token("=", False) or not option[2].is_word:
                raise ValueError(
                    f'has something other than key="value" after {len(options)} options; quote what is no plain word'
                )
            options[option[0].text] = option[2].text
            position += 3
        if position >= len(tokens):
            raise ValueError("does not end with a semicolon")
        position += 1
        entries.append(JaasEntry(module.text, options))
    return entries


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        character = text[position]
        if character <= " ":
            position += 1
        elif character in "\"'":
            word, position = _quoted(text, position)
            yield _Token(word, True)
        elif character == "/":
            position = _after_comment(text, position)
        elif _is_word(character):
            end = position
            while end < len(text) and _is_word(text[end]):
                end += 1
            # To Java's tokenizer, what begins with a digit is a number and not a word.
            yield _Token(text[position:end], not (character.isdigit() or character == "."))
            position = end
        else:
            yield _Token(character, False)
            position += 1


def _is_word(character: str) -> bool:
    return (character.isascii() and character.isalnum()) or character in "-_$." or ord(character) >= 160


def _after_comment(text: str, position: int) -> int:
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _quoted(text: str, position: int) -> tuple[str, int]:
    """The word in the quotes that begin at `position`, and where it ends: at the same quote, or with its line."""
    quote, position = text[position], position + 1
    word = ""
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character in "01234567":
                digits = character
                longest = 3 if character <= "3" else 2
                while len(digits) < longest and position < len(text) and text[position] in "01234567":
                    digits += text[position]
                    position += 1
                character = chr(int(digits, 8))
            else:
                character = _ESCAPES.get(character, character)
        word += character
    if position >= len(text) or text[position] != quote:
        raise ValueError("has a quote that does not end")
    return word, position + 1
