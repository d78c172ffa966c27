"""What `python -m distill|train|infer RECIPE` have in common: arguments, logging, and errors as one line."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from refinery.errors import RefineryError
from refinery.recipe import Recipe, load_recipe


def stage_parser(stage: str, description: str) -> argparse.ArgumentParser:
    """The arguments of a stage; one home for their help texts."""
    parser = argparse.ArgumentParser(prog=f"refinery {stage}", description=description)
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML recipe; those that ship with the project are under recipes/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of the recipe; dots reach into parts")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved recipe and the first examples, and stop")
    parser.add_argument("--resume", action="store_true", help="go on with the run in output_dir")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser


def run_stage(
    stage: str,
    description: str,
    recipe_type: type[Recipe],
    *,
    preview: Callable[[Any], None],
    run: Callable[..., Any],
    report: Callable[[Any], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Parse the command line, load the recipe, and preview or run. Returns the exit code."""
    arguments = stage_parser(stage, description).parse_intermixed_args(argv)
    configure_logging()

    def go() -> None:
        recipe = load_recipe(arguments.recipe, recipe_type, arguments.overrides)
        if arguments.dry_run:
            print(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False))
            preview(recipe)
        else:
            result = run(recipe, resume=arguments.resume)
            if os.environ.get("RANK", "0") == "0":
                report(result)

    return guarded(go, traceback=arguments.traceback)


def guarded(action: Callable[[], None], *, traceback: bool) -> int:
    """Run `action`; an error that a user can mend becomes one line and exit code 2."""
    try:
        action()
    except RefineryError as error:
        if traceback:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped. What is done so far is kept; --resume goes on from it.", file=sys.stderr)
        return 130
    return 0


def configure_logging() -> None:
    """Logs to stderr, from the first process only; libraries speak from warnings up."""
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.ERROR
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    for name in ("refinery", "distill", "train", "infer"):
        logging.getLogger(name).setLevel(level)
