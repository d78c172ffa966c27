"""The files that ship with the code: recipes with their data, accelerate files, and the demo's checkpoint.

A checkout has `recipes/` and `accelerate_configs/` at its top, an installed package has them inside `refinery`. Their names are the
same in both, such as `recipes/demo/infer/rq_rag.yaml`.
"""

import logging
from functools import cache
from pathlib import Path, PurePath
from typing import Any, cast

from refinery.errors import RecipeError
from refinery.text import did_you_mean

RECIPES = "recipes"
ACCELERATE_CONFIGS = "accelerate_configs"
DEMO_CHECKPOINT = "refinery/demo/checkpoint"
_SHIPPED = tuple(PurePath(name).parts for name in (RECIPES, ACCELERATE_CONFIGS, DEMO_CHECKPOINT))
_PACKAGE = Path(__file__).parents[2]
_log = logging.getLogger(__name__)


def shipped(name: str | PurePath) -> Path:
    """The path of the shipped file or folder `name`, such as `recipes/retrieval/bm25.yaml`. It may not exist."""
    packaged = _PACKAGE / name
    return packaged if packaged.exists() else _PACKAGE.parent / name


def accelerate_file(name: str | PurePath) -> Path:
    """The accelerate file of that name which ships, or else the one at that path, here or among those that ship. Raises RecipeError."""
    by_name = shipped(f"{ACCELERATE_CONFIGS}/{name}.yaml")
    file = by_name if by_name.exists() else found(name)
    if not file.is_file():
        names = sorted(each.stem for each in shipped(ACCELERATE_CONFIGS).glob("*.yaml"))
        hint = did_you_mean(str(name), names)
        raise RecipeError(
            f"{name}: there is no such accelerate file.{hint} Give its path, or the name of one that ships: {', '.join(names)}."
        )
    return file


def shipped_files() -> list[PurePath]:
    """Every recipe with its data and README, and every accelerate file, as sorted names for `shipped`."""
    folders = (shipped(name) for name in (RECIPES, ACCELERATE_CONFIGS))
    files = (file.relative_to(folder.parent) for folder in folders for file in folder.rglob("*") if file.is_file())
    return sorted(PurePath(file) for file in files if file.parent.name != "__pycache__")


def found(path: str | PurePath) -> Path:
    """`path`, or the shipped file of that name if the working directory has none, which is logged."""
    path = Path(path)
    names_shipped = any(path.parts[: len(prefix)] == prefix for prefix in _SHIPPED) and ".." not in path.parts
    if not names_shipped or path.exists() or not shipped(path).exists():
        return path
    _say_once(path)
    return shipped(path)


def is_shipped(path: Path) -> bool:
    """Whether an absolute path is one of the files that ship, or a folder of them."""
    return any(path.is_relative_to(shipped(PurePath(*prefix)).resolve()) for prefix in _SHIPPED)


def with_found_paths(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe's values, with each path as text and resolved by `found`."""
    return {key: _with_found_path(value) for key, value in values.items()}


def _with_found_path(value: Any) -> Any:
    if isinstance(value, dict):
        return with_found_paths(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_with_found_path(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, PurePath):
        return str(found(value))
    return str(found(value)) if isinstance(value, str) and found(value) != Path(value) else value


@cache
def _say_once(path: Path) -> None:
    _log.info("%s is not in the working directory: using the shipped file, %s", path, shipped(path))
