"""What `python -m distill|train|infer RECIPE` have in common: arguments, logging, and errors as one line."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from refinery.errors import RecipeError, RefineryError, Stopped
from refinery.runtime.process import is_main_process
from refinery.runtime.recipe import Recipe, load_recipe, read_yaml
from refinery.runtime.stages import stages
from refinery.text import PrintableFormatter, printable


def stage_parser(stage: str, description: str, *, shows_rows: bool = False, plans: bool = False) -> argparse.ArgumentParser:
    """The arguments of a stage; one home for their help texts. `--preview` only where there are rows, a launch where one is planned."""
    parser = argparse.ArgumentParser(prog=f"refinery {stage}", description=description)
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML recipe; `refinery recipes` lists those that ship")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of the recipe; dots reach into parts")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved recipe and the first examples, and stop")
    if shows_rows:
        parser.add_argument("--preview", type=int, metavar="N", help="print the first N rows token by token, trained or masked, and stop")
    if plans:
        parser.add_argument(
            "--config_file", metavar="FILE", help="with --dry-run: plan for a launch with this accelerate file, or its name"
        )
        parser.add_argument(
            "--num_processes", type=int, metavar="N", help="with --dry-run: processes in all, where the file is to be overruled"
        )
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
    show_rows: Callable[[Any, int], None] | None = None,
    plan: Callable[[Any, str | None, int | None], None] | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Parse the command line, load the recipe, and preview or run. Returns the exit code.

    `plan` is given the accelerate file and the number of processes that a dry run is to plan for.
    """
    parser = stage_parser(stage, description, shows_rows=show_rows is not None, plans=plan is not None)
    arguments = parser.parse_intermixed_args(argv)
    configure_logging(tracebacks=arguments.traceback)

    def go() -> None:
        _check_stage(stage, arguments.recipe)
        recipe = load_recipe(arguments.recipe, recipe_type, arguments.overrides)
        recipe.check(arguments.recipe)
        if arguments.dry_run:
            print(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False))
            if plan is not None:
                plan(recipe, arguments.config_file, arguments.num_processes)
            preview(recipe)
        elif show_rows is not None and arguments.preview is not None:
            show_rows(recipe, arguments.preview)
        else:
            result = run(recipe, resume=arguments.resume)
            if is_main_process():
                report(result)

    return guarded(go, traceback=arguments.traceback)


def _check_stage(stage: str, path: str) -> None:
    """Raise RecipeError for a recipe of another stage, which would have all its keys unknown to this one."""
    keys = read_yaml(path).keys()
    others = [name for name, other in stages().items() if name != stage and other.recipe_keys <= keys]
    if others and not stages()[stage].recipe_keys <= keys:
        raise RecipeError(f"{path}: is a recipe of another stage. Run it by: refinery {others[0]} {path}")


def guarded(action: Callable[[], None], *, traceback: bool) -> int:
    """Run `action`; an error that a user can mend becomes one line and exit code 2, a stop that was asked for one line and 143."""
    try:
        action()
    except Stopped as stopped:
        if is_main_process():
            print(printable(str(stopped)), file=sys.stderr)
        return 128 + signal.SIGTERM
    except RefineryError as error:
        if traceback:
            raise
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped. What is done so far is kept; --resume goes on from it.", file=sys.stderr)
        return 130
    return 0


def configure_logging(*, tracebacks: bool = False) -> None:
    """Logs to stderr, from the first process only; libraries speak from warnings up. With `tracebacks` also of errors that became data."""
    level = logging.INFO if is_main_process() else logging.ERROR
    level = logging.DEBUG if tracebacks else level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in ("refinery", "distill", "train", "infer"):
        logging.getLogger(name).setLevel(level)
