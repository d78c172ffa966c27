"""What a project's file says: the values that the recipes share, and the steps.

The file is `refinery.yaml` in the project's folder, whose recipes refer to its values, or a file of any other name, which only lists steps
and is run from where its paths are relative to.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, StringConstraints

from refinery.errors import RecipeError
from refinery.project.variants import repeated
from refinery.runtime.recipe import Recipe, apply_overrides, build_recipe
from refinery.runtime.recipes.shared_values import PROJECT_FILE, change_values
from refinery.runtime.recipes.yaml_file import read_yaml

# It names the step's log.
StepName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]


class Step(Recipe):
    """One `refinery` command, such as `[train, recipes/train/relevance.yaml, epochs=1]`."""

    command: list[str] = Field(min_length=1, description="the command's words; a stage's recipe may be followed by key=value")
    accelerate: str | None = Field(
        default=None, description="for train and infer: launch with this accelerate file (a path or a shipped name)"
    )
    environment: dict[str, str] = Field(default={}, description="environment variables of this step")
    shown: bool = Field(default=False, description="print what the step printed when the project has finished")
    then: list[list[str]] = Field(default=[], description="commands that work on in the step's output, such as [judge, runs/x, model=NAME]")
    reads: list[str] = Field(default=[], description="folders that the step reads without naming them in its command")
    entry: str = Field(default="", description="(filled in) the step as it is written in the file, where it has variants")


class Project(Recipe):
    """The content of `refinery.yaml`. Steps that do not need each other run in this order."""

    values: dict[str, Any] = Field(default={}, description="what recipes and commands refer to as ${name}")
    steps: dict[StepName, Step] = Field(min_length=1, description="the steps by name")
    variants: dict[str, dict[str, dict[str, Any]]] = Field(
        default={}, description="what steps with `over` are repeated for, such as models"
    )
    stand_in: dict[str, Any] = Field(default={}, description="values of `refinery run --stand-in`, instead of those of the same names")
    folder: Path = Field(default=Path(), description="where the state and the logs of the steps are kept")
    serve: str | None = Field(default=None, description="the recipe that `refinery serve` serves")
    skip: list[StepName] = Field(default=[], description="steps to leave out, with every step whose recipe reads what they make")
    at_once: int = Field(default=1, description="how many steps run at a time, if they do not need each other", ge=1)
    environment: dict[str, str] = Field(default={}, description="environment variables of every step, such as CUDA_VISIBLE_DEVICES")


def read_project(place: Path, overrides: Sequence[str] = (), *, stand_in: Mapping[str, Any] | None = None) -> Project:
    """The project in a folder, or of a file, with `key=value` overrides such as `values.base=NAME`. Raises RecipeError, a line per fault.

    Overridden values are those of the recipes too, in this process and in its steps. With `stand_in`, these values and those under
    `stand_in` in the file take the places of the others.
    """
    where = place / PROJECT_FILE if place.is_dir() or place.suffix != ".yaml" else place
    if where != place and not where.is_file():
        raise RecipeError(f"{place}: has no {PROJECT_FILE}, so it is not a project. Start one: refinery new {place} ...")
    read = apply_overrides(read_yaml(where), overrides, where=str(where))
    values = (read.get("values") or {}) | ({} if stand_in is None else {**stand_in, **(read.get("stand_in") or {})})
    steps = read.get("steps")
    if isinstance(steps, dict):
        steps = repeated(cast("dict[str, Any]", steps), read.get("variants") or {}, values, where=f"{where}: steps")
    project = build_recipe({**read, "steps": steps}, Project, where=str(where))
    if overrides and where.name == PROJECT_FILE:
        change_values(where.parent, project.values)
    return project
