"""Saved inputs: `tests/fuzz/corpus/*.json`, each with the reason why it is kept. Tests replay all of them.

    {"reason": "...", "steps": [{"line": 0, "send": "<hex>"}, {"wait_ms": 1000}, ...]}
    {"reason": "...", "ending": "kill", "edits": {"<path below the data directory>": "<hex>" or null}}

Bytes longer than `HEX_BYTES` are packed: `z:` and base64 of zlib's. Because ids are known (`watch.py`), bytes that
name a member or a topic id mean the same when they are replayed. A node is begun as `Life` begins it, or from
`files.template`.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from kit.fuzz import files, tls
from kit.fuzz.life import Cost, Step

FOLDER = Path(__file__).resolve().parents[2] / "fuzz" / "corpus"
HEX_BYTES = 200


def saved() -> list[Path]:
    """All cases."""
    return sorted(FOLDER.glob("*.json"))


def replay(path: Path) -> Cost:
    """Live the case again. Raises Finding."""
    case = json.loads(path.read_text(encoding="utf-8"))
    if "edits" in case:
        edits = {name: None if data is None else _unpacked(data) for name, data in case["edits"].items()}
        return Cost(seconds=files.run(case["ending"], edits).seconds)
    steps: list[Step] = case["steps"]
    for step in case["steps"]:
        if "send" in step:
            step["send"] = _unpacked(step["send"])
    with tls.life_of(steps) as life:
        life.live(steps)
    return life.cost


def steps_to_json(reason: str, steps: list[Step]) -> str:
    """A case of steps as the text of its file."""
    reported: list[dict[str, Any]] = [
        {**step, "send": _packed(step["send"])} if "send" in step else {**step} for step in steps
    ]
    return json.dumps({"reason": reason, "steps": reported}, indent=1) + "\n"


def edits_to_json(reason: str, ending: str, edits: files.Edits) -> str:
    """A case of files as the text of its file."""
    reported = {name: None if data is None else _packed(data) for name, data in edits.items()}
    return json.dumps({"reason": reason, "ending": ending, "edits": reported}, indent=1) + "\n"


def _packed(data: bytes) -> str:
    return data.hex() if len(data) <= HEX_BYTES else "z:" + base64.b64encode(zlib.compress(data, 9)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text[2:])) if text.startswith("z:") else bytes.fromhex(text)
