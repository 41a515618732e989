"""docs/compatibility.md says what the profiles show."""

from __future__ import annotations

import re

from kit.profile_tables import PAGE, with_tables

from ottla.broker.api import HANDLERS
from ottla.broker.profiles.profiles import profile_named
from ottla.broker.requests.gate import advertised_apis
from ottla.config.ours import PROFILE_NAMES


def test_the_tables_are_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run scripts/profile-tables"


def test_every_profile_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in PROFILE_NAMES)


def test_the_table_is_what_api_versions_lists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \w+ \((\d+)\) \| (.*) \|$", page, re.MULTILINE)
    shown = {int(key): [cell.split(" of ")[0] for cell in cells.split(" | ")] for key, cells in rows}
    assert shown.keys() == HANDLERS.keys()
    for slot, name in enumerate(PROFILE_NAMES):
        for api in advertised_apis(profile=profile_named(name)):
            first, _, last = shown[api.key][slot].partition("-")
            assert (int(first), int(last or first)) == (api.min_version, api.max_version), (name, api)
