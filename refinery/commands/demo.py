"""`refinery demo`."""

import argparse
from pathlib import Path

GROUP = "Pipeline"
HELP = "the whole loop on the embedded world, offline on CPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--seed", type=int, default=0, help="seed for the rare entities, questions, splits and training order")
    parser.add_argument(
        "--world",
        choices=("plain", "hard"),
        default="plain",
        help="hard: more hops, other names, misleading passages, and labels of a quarter of the questions (RQ-RAG only)",
    )
    parser.add_argument(
        "--methods", choices=("core", "all"), default="core", help="all: re-thinking, MIGRES, their students, a learned selector, baselines"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="output folder (default: runs/demo)")
    parser.add_argument("--resume", action="store_true", help="continue a stopped demo")


def run(arguments: argparse.Namespace) -> None:
    """Run the demo."""
    from refinery.demo.run import run_demo

    run_demo(arguments.seed, arguments.output, methods=arguments.methods, resume=arguments.resume, world=arguments.world)
