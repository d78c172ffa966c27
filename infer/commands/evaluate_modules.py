"""`refinery evaluate-modules RECIPE [key=value ...]` and `refinery evaluate-modules RUN...`."""

import argparse
from pathlib import Path
from typing import Any

GROUP = "Results"
HELP = "run one module of a decoder alone on annotated questions, and measure it: precision, recall, found passages and cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recipe", metavar="RECIPE|RUN", help="an infer recipe, with module=NAME; or the output_dir of a finished run")
    parser.add_argument("more", nargs="*", default=[], metavar="key=value|RUN", help="overrides of the recipe; or more finished runs")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved recipe and the annotated questions, then stop")
    parser.add_argument("--resume", action="store_true", help="continue the run in output_dir, and ask failed questions again")
    parser.add_argument("--format", default="terminal", choices=["terminal", "markdown", "csv", "latex", "json"])
    parser.add_argument("--wide", action="store_true", help="in the terminal: models, settings, intervals and costs, as other formats have")


def run(arguments: argparse.Namespace) -> None:
    """Run the module if a recipe is named, and print the tables."""
    runs = [Path(name) for name in (arguments.recipe, *arguments.more)]
    if Path(arguments.recipe).suffix in (".yaml", ".yml"):
        if (folder := _run_recipe(arguments)) is None:
            return
        runs = [folder]
    print(_text(runs, arguments.format, wide=arguments.wide), end="")


def _run_recipe(arguments: argparse.Namespace) -> Path | None:
    """The run's folder; None after a dry run. Raises LLMError if questions failed."""
    from infer.evaluation.module_scores import STAGE, module_metrics
    from infer.module_recipe import ModuleRecipe
    from infer.run import run_recipe
    from refinery.runtime.recipe import load_recipe
    from refinery.runtime.recipes.shared_values import enter_project

    path = enter_project(arguments.recipe)
    recipe = load_recipe(path, ModuleRecipe, arguments.more)
    recipe.check(path)
    if arguments.dry_run:
        _preview(recipe.trimmed())
        return None
    run_recipe(
        recipe.trimmed(),
        stage=STAGE,
        finish=lambda recipe, _, answers, *__: module_metrics(recipe, answers),
        resume=arguments.resume,
    )
    return recipe.output_dir


def _preview(recipe: Any) -> None:
    import yaml

    from refinery.text import printable

    print(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False))
    kind, questions = recipe.found_module().kind, recipe.read()
    which = f" that have {kind.needs}" if recipe.needs_annotations else ""
    print(printable(f"--- module '{recipe.module}' ({kind.name}) on {len(questions)} questions{which}"))


def _text(runs: list[Path], table_format: Any, *, wide: bool) -> str:
    from infer.evaluation.module_scores import module_quality
    from infer.evaluation.tables.modules import module_json, module_text

    found = module_quality(runs)
    return module_json(found) if table_format == "json" else module_text(found, table_format, wide=wide)
