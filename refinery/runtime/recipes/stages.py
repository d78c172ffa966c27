"""The stages, as the installed package declares them (entry points `refinery.stages`). This module imports none of them by name."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from refinery.errors import PluginError
from refinery.runtime.forecast import Expected, Forecast

GROUP = "refinery.stages"


class Stage:
    """What a stage adds to the `refinery` command. Each stage declares one instance, `STAGE` in its `stage.py`.

    A method that a stage does not define is in the stage's package: `__main__.main`, `commands`, `viewing.plot.panels`,
    `viewing.page.write` and `viewing.card.digest`, each imported when it is first called.
    """

    name: str
    makes: str  # what its runs give, in the plural
    summary: str  # in `refinery --help`
    position: int  # in the pipeline, from 1
    recipe_keys: frozenset[str]  # keys that occur together in recipes of this stage only
    page_rows: str = "questions"  # what a row of its page is

    def main(self, argv: Sequence[str]) -> int:
        """Run `refinery NAME ...`; returns the exit code."""
        return self._module("__main__").main(argv)

    def commands(self) -> ModuleType | None:
        """The package whose modules are the stage's commands, if it has any; `refinery.commands` describes such a module."""
        return self._module("commands") if self._package and find_spec(f"{self._package}.commands") else None

    def panels(self, runs: Sequence[Path]) -> Any:
        """The panels that `refinery plot` can draw for finished runs (`refinery.reporting.figures.Panel`)."""
        return self._module("viewing.plot").panels(runs)

    def write_page(self, runs: Sequence[Path], output: Path, *, limit: int, project: str = "") -> int:
        """Write the page of runs, with a link to the index of its `project` if that is named, and return the number of its rows."""
        return self._module("viewing.page").write(runs, output, limit=limit, project=project)

    def digest(self, run: Path) -> list[tuple[str, str]]:
        """A few facts about a run, for the overview of its project: (name, value)."""
        return self._module("viewing.card").digest(run)

    def recipe_type(self) -> Any:
        """The class of its recipes, with which a project's recipes are checked before the first step; None for a stage that has none."""
        return None

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected, *, accelerate: str | None = None) -> Forecast:
        """What a run of a recipe will probably take, before its inputs exist, launched with that accelerate file. Raises RecipeError."""
        return Forecast(dollars=None)

    @property
    def _package(self) -> str:
        return type(self).__module__.rpartition(".")[0]

    def _module(self, name: str) -> ModuleType:
        return import_module(f"{self._package}.{name}")


@cache
def stages() -> dict[str, Stage]:
    """Every declared stage by name, in the order of the pipeline. Raises PluginError when one cannot be loaded."""
    declared = entry_points(group=GROUP)
    if not declared:
        raise PluginError("no stages are declared: this checkout is not installed. Install it: pip install -e .")
    return {stage.name: stage for stage in sorted(map(_load, declared), key=lambda stage: stage.position)}


def own_stage(name: str) -> Stage | None:
    """The stage of this name that Refinery itself declares, or None: found without reading what every installed package declares.

    Raises PluginError when it cannot be loaded.
    """
    try:
        points = distribution("rag-refinery").entry_points.select(group=GROUP, name=name)
    except PackageNotFoundError:
        return None
    return next(map(_load, points), None)


def _load(point: EntryPoint) -> Stage:
    try:
        stage = point.load()
    except (ImportError, AttributeError) as error:
        raise PluginError(f"stage '{point.name}': {point.value} cannot be loaded ({error}).{_shadow(point)}") from None
    if not isinstance(stage, Stage):
        raise PluginError(f"stage '{point.name}': {point.value} is not a Stage.{_shadow(point)}")
    return stage


def _shadow(point: EntryPoint) -> str:
    """Says where Python found another package instead of ours, such as a user's own folder or file named `train`."""
    spec = find_spec(point.module.partition(".")[0])
    if spec is None:
        return ""
    found = next(iter(spec.submodule_search_locations or []), spec.origin)
    return f" Python finds {found}; if that is your own, rename it, run from another folder, or set PYTHONSAFEPATH=1."
