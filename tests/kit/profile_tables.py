"""The tables of docs/compatibility.md: which versions each profile shows, and what of its release is not there.

``python -m kit.profile_tables`` with ``tests`` on the path writes them into the page; scripts/profile-tables does that.
"""

from __future__ import annotations

from pathlib import Path

from ottla.broker.api import HANDLERS
from ottla.broker.metadata.features import SUPPORTED_FEATURES
from ottla.broker.profiles.profiles import Profile, profile_named
from ottla.broker.profiles.releases import API_NAMES, FEATURES, RELEASES
from ottla.config.ours import PROFILE_NAMES
from ottla.protocol.api import REGISTRY

PAGE = Path(__file__).parent.parent.parent / "docs" / "compatibility.md"
BEGIN = "<!-- tables: written by scripts/profile-tables -->"
END = "<!-- end of tables -->"

Range = tuple[int, int]


def tables() -> str:
    """What stands between the marks."""
    profiles = [profile_named(name) for name in PROFILE_NAMES]
    return "\n".join([*_versions(profiles), "", *_features(profiles), "", *_missing(profiles), ""])


def with_tables(page: str) -> str:
    """The page with the tables as they should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def _versions(profiles: list[Profile]) -> list[str]:
    head = " | ".join(profile.name for profile in profiles)
    rows = [f"| API (key) | {head} |", "|---|" + "---|" * len(profiles)]
    for key in sorted(HANDLERS):
        cells = " | ".join(_cell(profile, key) for profile in profiles)
        rows.append(f"| {API_NAMES[key]} ({key:d}) | {cells} |")
    return rows


def _cell(profile: Profile, key: int) -> str:
    """What is shown, and in brackets what the release has where that is more."""
    api = REGISTRY[key]
    shown, of_release = profile.advertised(api), RELEASES[profile.release].get(key)
    if shown is None:
        return "" if of_release is None else f"none of {_words(of_release)}"
    if of_release is None or profile.serves_older or shown == of_release:
        return _words(shown)
    return f"{_words(shown)} of {_words(of_release)}"


def _words(versions: Range) -> str:
    first, last = versions
    return str(first) if first == last else f"{first}-{last}"


def _features(profiles: list[Profile]) -> list[str]:
    head = " | ".join(profile.name for profile in profiles)
    rows = [f"| feature | {head} |", "|---|" + "---|" * len(profiles)]
    for name in sorted({name for levels in FEATURES.values() for name in levels}):
        rows.append(f"| {name} | " + " | ".join(_levels(profile, name) for profile in profiles) + " |")
    return rows


def _levels(profile: Profile, name: str) -> str:
    shown, of_release = profile.supported_features(SUPPORTED_FEATURES).get(name), FEATURES[profile.release].get(name)
    if of_release is None:
        return ""
    if shown is None:
        return f"none of {_words(of_release)}"
    return _words(shown) if shown == of_release else f"{_words(shown)} of {_words(of_release)}"


def _missing(profiles: list[Profile]) -> list[str]:
    lines = ["| profile | APIs of the release that are not here |", "|---|---|"]
    for profile in profiles:
        missing = [API_NAMES[key] for key in RELEASES[profile.release] if key not in HANDLERS]
        lines.append(f"| {profile.name} | {', '.join(missing)} |")
    return lines


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
