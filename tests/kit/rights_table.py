"""The table of rights in docs/security.md: which right each API needs, from the declarations beside the handlers.

``python -m kit.rights_table`` with ``tests`` on the path writes it into the page; scripts/rights-table does that.
"""

from __future__ import annotations

from pathlib import Path

from ottla.broker.api import HANDLERS
from ottla.broker.declarations import Need
from ottla.protocol.acls import ResourceType
from ottla.protocol.api import REGISTRY

PAGE = Path(__file__).parent.parent.parent / "docs" / "security.md"
BEGIN = "<!-- rights: written by scripts/rights-table -->"
END = "<!-- end of rights -->"
WORDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
    ResourceType.DELEGATION_TOKEN: "delegation token",
    ResourceType.USER: "user",
}


def table() -> str:
    """One row for each right, and each thing that comes of lacking it, with the APIs that need it."""
    rows: dict[tuple[int, int, str], list[str]] = {}
    for key in sorted(HANDLERS):
        for need in HANDLERS[key]().needs:
            row = need.resource_type, need.operation, f"{_right(need)} | {_lacking(need)}"
            rows.setdefault(row, []).append(REGISTRY[key].name + (f" ({need.when})" if need.when else ""))
    lines = ["| right | without it | APIs, and of which requests |", "|---|---|---|"]
    lines += [f"| {text} | {', '.join(names)} |" for (_, _, text), names in sorted(rows.items())]
    none = [REGISTRY[key].name for key in sorted(HANDLERS) if not HANDLERS[key]().needs]
    return "\n".join([*lines, f"| none | | {', '.join(none)} |"])


def with_table(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def _right(need: Need) -> str:
    text = f"{need.operation.name} {WORDS[need.resource_type]}"
    if need.unless is not None:
        operation, resource_type = need.unless
        anything = "" if resource_type is ResourceType.CLUSTER else "any "
        text += f", or {operation.name} {anything}{WORDS[resource_type]}"
    return text


def _lacking(need: Need) -> str:
    if need.lacking:
        return need.lacking
    return f"the {WORDS[need.resource_type]} is refused" if need.answered else "the request is refused"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
