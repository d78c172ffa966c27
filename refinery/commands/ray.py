"""`refinery ray STAGE RECIPE [key=value ...] --shards N`."""

import argparse
import sys

GROUP = "Pipeline"
HELP = "run the shards of a distill or infer recipe on a Ray cluster, and merge them into one run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("stage", choices=["distill", "infer"], metavar="STAGE", help="the stage of the recipe: distill or infer")
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML recipe, whose inputs and output_dir every node sees")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="overrides of the recipe; use dots for nested keys")
    parser.add_argument("--shards", type=_at_least_one, required=True, metavar="N", help="number of shards, best a few for each worker")
    parser.add_argument("--address", help="of the cluster (default: RAY_ADDRESS, a cluster on this machine, or a new one of its cores)")
    parser.add_argument("--cpus", type=_not_negative, default=1, metavar="N", help="CPUs that each shard takes (default: 1)")
    parser.add_argument("--gpus", type=_not_negative, default=0, metavar="N", help="GPUs that each shard takes (default: 0)")
    parser.add_argument("--resume", action="store_true", help="allowed, as for the stages; the same command always continues")


def run(arguments: argparse.Namespace) -> None:
    """Run the shards, and print what came out of all of them."""
    from refinery.project.on_ray import Resources, run_on_ray
    from refinery.runtime.project_values import enter_project

    recipe, each = enter_project(arguments.recipe), Resources(arguments.cpus, arguments.gpus)
    if code := run_on_ray(arguments.stage, recipe, arguments.overrides, shards=arguments.shards, address=arguments.address, each=each):
        sys.exit(code)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of shards, such as 8")
    return int(text)


def _not_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of devices, such as 1 or 0.5")
    return number
