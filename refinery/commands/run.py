"""`refinery run PROJECT`."""

import argparse
import os
from pathlib import Path

GROUP = "Pipeline"
HELP = "do every step of a project that is not up to date: passages, index, questions, labels, training, answers, table, page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("project", type=Path, metavar="PROJECT", help="a folder that `refinery new` made")
    parser.add_argument("--until", metavar="STEP", help="stop after this step")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, then stop: what each step will do, cost and need")
    parser.add_argument("--resume", action="store_true", help="allowed, as for the stages; a project always continues where it was stopped")


def run(arguments: argparse.Namespace) -> None:
    """Print the plan, do the steps, and print what came out."""
    from refinery.project.jobs import jobs_of
    from refinery.project.plan import plan_of, print_plan
    from refinery.project.project import read_project
    from refinery.project.report import print_report
    from refinery.project.run import run_jobs
    from refinery.runtime.project_values import PROJECT_FILE

    project = read_project(arguments.project)
    os.chdir(arguments.project)
    jobs = jobs_of(project, where=f"{arguments.project / PROJECT_FILE}", until=arguments.until)
    print_plan(plan_of(jobs, Path()))
    if not arguments.dry_run:
        run_jobs(jobs, Path(), at_once=project.at_once)
        print_report(project, jobs, arguments.project, whole=arguments.until is None)
