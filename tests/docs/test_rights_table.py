"""The table of rights in docs/security.md is what the modules of the APIs state."""

from __future__ import annotations

from kit.rights_table import PAGE, with_table


def test_the_table_of_rights_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "run scripts/rights-table"
