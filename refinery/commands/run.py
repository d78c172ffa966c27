"""`refinery run PROJECT`."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refinery.project.project import Project
    from refinery.project.run import Runner

GROUP = "Pipeline"
HELP = "do every step of a project, or of a paper's reproduction, that is not up to date, after a plan of what they cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("project", type=Path, metavar="PROJECT", help="a folder that `refinery new` made, or a file of steps")
    parser.add_argument("--until", metavar="STEP", help="stop after this step")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, then stop: what each step will do, cost and need")
    parser.add_argument("--resume", action="store_true", help="allowed, as for the stages; a project always continues where it was stopped")
    parser.add_argument(
        "--stand-in",
        nargs="?",
        const=Path("runs/stand_in"),
        type=Path,
        metavar="FOLDER",
        help="for a file of steps: do them all on shipped rows with tiny models, in this folder (default: runs/stand_in)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the plan, do the steps, and print what came out."""
    from refinery.project.project import read_project

    if arguments.stand_in is not None:
        _stand_in(arguments)
        return
    project = read_project(arguments.project)
    if arguments.project.is_dir():
        os.chdir(arguments.project)
    _run(arguments, project)


def _stand_in(arguments: argparse.Namespace) -> None:
    from refinery.demo.stand_in.place import TINY_MODELS, stand_in_place
    from refinery.project.here import runner_here
    from refinery.project.project import read_project

    os.environ["HF_HUB_OFFLINE"] = "1"
    file = arguments.project.absolute()
    tiny_models = f"${{{TINY_MODELS}}}" in file.read_text(encoding="utf-8")
    with stand_in_place(arguments.stand_in / file.parent.name, tiny_models=tiny_models) as values:
        _run(arguments, read_project(file, stand_in=values), runner=runner_here(arguments.main))


def _run(arguments: argparse.Namespace, project: "Project", runner: "Runner | None" = None) -> None:
    from refinery.commands import command_of
    from refinery.project.jobs import jobs_of
    from refinery.project.plan import plan_of, print_plan
    from refinery.project.process import run_process
    from refinery.project.report import print_report
    from refinery.project.run import run_jobs

    jobs = jobs_of(project, where=str(arguments.project), until=arguments.until)
    print_plan(plan_of(jobs, project.folder, command_of))
    if not arguments.dry_run:
        run_jobs(jobs, project.folder, at_once=1 if runner else project.at_once, runner=runner or run_process)
        print_report(project, jobs, arguments.project, whole=arguments.until is None)
