"""Words that pages, docstrings, comments, log lines and errors do not use: CONTRIBUTING.md, "Words".

A reader who knows Kafka, or has English as a second language, must not have to learn words that only this project has.
The list has those that came back most often. Reading finds the others.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]

WORDS = {
    r"(short|long) ways?": "fast path, slow path",
    r"(is|are|was|were|be|been|being) told": "gets, receives; is reported, returned, logged, sent",
    r"tells": "returns, reports, logs, shows",
    r"whoever": "the client that, the caller that",
    r"(somebody|everybody) who": "a client that, all requests that",
    r"courtesy": "yielding to the event loop, resting",
    r"fates?": "status",
    r"(kept|keeps|keep) \w* ?aside": "quarantined",
    r"wish(es|ed)?": "request",
    r"wide requests?": "chunked requests",
    r"(made|written|begins?|read) anew": "created again, rebuilt, rewritten, begins again",
    r"take_in|shows_at_once|looked\(\)": "validate_and_assign, visible_on_append, poll_done",
    r"in silence": "silently",
    r"as ever": "as always",
    r"none the worse": "unaffected",
    r"bears? (it|them|this) out": "confirm",
    r"by the way": "(leave it out)",
    r"decisions\.md": "a page of docs/decisions",
    r"by turns": "in turn, alternately",
    r"(makes?|made|has|had) it that": "a plain verb",
    r"(set|sets|setting) aside": "quarantined (bytes), renamed to -stray (directories)",
    r"spoilt|spoils?": "damaged",
    r"dear(er|est)?": "expensive, costs more",
    r"ever new": "more and more, a new one each time",
    r"thereof|therein|whereof": "of it, in it",
    r"gone on with": "continued",
}
"""Pattern, in lower case: what to write in its place."""


ALLOWED: dict[tuple[str, str], str] = {}
"""(file, line): why this one may use the word."""


@cache
def pages() -> list[tuple[str, str]]:
    """The pages for readers, without code and without the table of words. The changelog is history."""
    found = []
    for page in sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")]):
        if page.name not in ("CHANGELOG.md", "ARCHITECTURE.md") and page.parent.name != "decisions":
            text = re.sub(r"(?ms)^## Words$.*?(?=^## )", "", page.read_text(encoding="utf-8"))
            text = re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```$", "", text))
            found.append((str(page.relative_to(TOP)), text))
    return found


@cache
def sources() -> list[tuple[str, str]]:
    """Every Python file of the product: names, comments, docstrings, and the texts that users see."""
    return [(str(path.relative_to(TOP)), path.read_text()) for path in sorted((TOP / "ottla").rglob("*.py"))]


@cache
def lowered(text: str) -> str:
    return text.lower()


def lines_with(word: str, files: list[tuple[str, str]]) -> list[str]:
    """`file: line` for each line that has the word. A phrase that is wrapped over two lines counts as well."""
    wrapped = word.replace(" ", r"\s+(?:# )?")
    anywhere = re.compile(wrapped)  # in lower-case text: takes a sixth of the time of a search for both cases
    pattern = re.compile(rf"\b(?:{wrapped})(?!\w)", re.IGNORECASE)
    found = []
    for name, text in files:
        if not anywhere.search(lowered(text)):
            continue
        for match in pattern.finditer(text):
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0].strip()
            if (name, line) not in ALLOWED:
                found.append(f"{name}: {line}")
    return found


@pytest.mark.parametrize("word", WORDS)
def test_pages_are_free_of_it(word: str) -> None:
    assert lines_with(word, pages()) == [], f"write: {WORDS[word]}"


@pytest.mark.parametrize("word", WORDS)
def test_code_is_free_of_it(word: str) -> None:
    assert lines_with(word, sources()) == [], f"write: {WORDS[word]}"


def test_a_wrapped_phrase_is_found() -> None:
    assert lines_with(r"in silence", [("page", "it ends in\n    # silence, always")]) == ["page: it ends in"]
