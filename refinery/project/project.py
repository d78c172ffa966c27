"""What `refinery.yaml` says: the values that the project's recipes share, and the steps."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from refinery.errors import RecipeError
from refinery.runtime.project_values import PROJECT_FILE, filled
from refinery.runtime.recipe import Recipe, build_recipe
from refinery.runtime.yaml_file import read_yaml

# It names the step's log.
StepName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]


class Step(Recipe):
    """One `refinery` command, such as `[train, recipes/train/relevance.yaml, epochs=1]`."""

    command: list[str] = Field(min_length=1, description="the command's words; a stage's recipe may be followed by key=value")
    accelerate: str | None = Field(default=None, description="for training: launch with this accelerate file (a path or a shipped name)")
    environment: dict[str, str] = Field(default={}, description="environment variables of this step")
    shown: bool = Field(default=False, description="print what the step printed when the project has finished")


class Project(Recipe):
    """The content of `refinery.yaml`. Steps that do not need each other run in this order."""

    values: dict[str, Any] = Field(default={}, description="what recipes and commands refer to as ${name}")
    steps: dict[StepName, Step] = Field(min_length=1, description="the steps by name")
    serve: str | None = Field(default=None, description="the recipe that `refinery serve` serves")
    at_once: int = Field(default=1, description="how many steps run at a time, if they do not need each other", ge=1)
    environment: dict[str, str] = Field(default={}, description="environment variables of every step, such as CUDA_VISIBLE_DEVICES")


def read_project(folder: Path) -> Project:
    """The project in a folder. Raises RecipeError with one line per fault."""
    where = folder / PROJECT_FILE
    if not where.is_file():
        raise RecipeError(f"{folder}: has no {PROJECT_FILE}, so it is not a project. Start one: refinery new {folder} ...")
    read = read_yaml(where)
    steps = filled(read.get("steps"), read.get("values") or {}, where=f"{where}: steps")
    return build_recipe({**read, "steps": steps}, Project, where=str(where))
