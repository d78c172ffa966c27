"""Find a task, decoder, retriever, reader or metric by name: one file of that name, no table to edit.

`load("infer.decoders", "rq_rag")` imports `infer/decoders/rq_rag.py`; `my_lab.colbert:ColBert` reaches outside the project.
"""

import difflib
import importlib
import pkgutil
from types import ModuleType
from typing import Any

from refinery.errors import PluginError


def load(package: str, name: str) -> Any:
    """The module `package.name`, or the object that `module:attribute` names. Raises PluginError naming what exists."""
    if ":" in name:
        return _load_outside(name)
    if name not in available(package):
        nearest = difflib.get_close_matches(name, available(package), n=1)
        hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
        raise PluginError(f"no {_noun(package)} '{name}'.{hint} Available: {', '.join(available(package))}.")
    return importlib.import_module(f"{package}.{name}")


def available(package: str) -> list[str]:
    """Names of the plugins in a package: its modules, less `base`, `fake` and the packages in it, which hold what plugins share."""
    module: ModuleType = importlib.import_module(package)
    return sorted(found.name for found in pkgutil.iter_modules(module.__path__) if found.name not in ("base", "fake") and not found.ispkg)


def _load_outside(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise PluginError(f"'{name}' cannot be loaded ({error}). It should read module:attribute.") from None


def _noun(package: str) -> str:
    name = package.rsplit(".", 1)[-1].removesuffix("s")
    return "reader" if name == "question" else name
