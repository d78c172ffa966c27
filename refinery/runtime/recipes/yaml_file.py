"""Read a YAML file that holds a mapping, such as a recipe or a project."""

from pathlib import Path
from typing import Any

import yaml

from refinery.errors import RecipeError
from refinery.runtime.recipes.shipped_files import found
from refinery.text import not_utf8, without_mark


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises RecipeError when it is missing, malformed or not a mapping."""
    values: dict[Any, Any] | list[Any] | str | None
    try:
        values = yaml.safe_load(without_mark(found(path).read_bytes()).decode())
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}). `refinery recipes` lists the shipped ones.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: {not_utf8(error.object, error)}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise RecipeError(f"{path}:{mark.line + 1 if mark else 1}: not valid YAML ({getattr(error, 'problem', error)}).") from None
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: has no keys. A recipe is a YAML mapping, one `key: value` per line.")
    return values
