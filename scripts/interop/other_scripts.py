"""Scripts of this directory as modules, for each other: most have names that no module can have."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def load_script(name: str) -> Any:
    """A new module of a script's code: `VERSION` and other constants of it may be set, for this caller alone."""
    loader = SourceFileLoader(name.replace("-", "_"), str(HERE / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look up their module
    sys.dont_write_bytecode = True  # no __pycache__ beside scripts
    loader.exec_module(module)
    return module
