"""`refinery calibrate RECIPE`."""

import argparse
from pathlib import Path

GROUP = "Models"
HELP = "choose a judge's threshold on validation labels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("recipe", metavar="RECIPE", help="an infer recipe whose decoder has judges")
    parser.add_argument("--role", required=True, metavar="TASK", help="which judge: self_knowledge, relevance, or a task of your own")
    parser.add_argument("--labels", type=Path, required=True, metavar="FILE", help="labels that distill wrote and the judge has not seen")
    parser.add_argument("--precision", type=float, metavar="SHARE", help="the lowest threshold with this precision; default: best F1")


def run(arguments: argparse.Namespace) -> None:
    """Print the threshold as a recipe key, with its scores. Exit code 3 where no threshold reaches the precision asked for."""
    from infer.evaluation.calibrate import calibrate, shown
    from infer.recipe import load_pipeline_recipe
    from refinery.runtime.recipes.shared_values import enter_project

    recipe = load_pipeline_recipe(enter_project(arguments.recipe))
    found = calibrate(recipe, arguments.role, arguments.labels, precision=arguments.precision)
    print(
        f"options.{found.option}={shown(found.threshold)}  # on {found.rows} labels: accuracy {found.accuracy:.3f}, F1 {found.f1:.3f}, "
        f"precision {found.precision:.3f}, recall {found.recall:.3f}"
    )
