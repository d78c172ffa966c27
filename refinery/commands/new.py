"""`refinery new PROJECT`."""

import argparse
from contextlib import chdir
from pathlib import Path

GROUP = "Pipeline"
HELP = "start a project from a folder of documents: recipes, and the steps that `refinery run` does"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("project", type=Path, metavar="PROJECT", help="a new folder")
    parser.add_argument("--documents", type=Path, required=True, metavar="FOLDER", help="your documents, or a file of passages")
    parser.add_argument("--teacher", metavar="URL", help="an OpenAI-compatible endpoint, such as http://host:8000/v1 (default: OpenAI)")
    parser.add_argument("--model", metavar="NAME", help="the endpoint's model; not needed if it has only one")
    parser.add_argument("--api-key-env", metavar="VARIABLE", help="the environment variable with its key (default: OPENAI_API_KEY)")
    parser.add_argument("--base", metavar="MODEL", help="the model to train, a folder or owner/name; without it, the endpoint's answers")
    parser.add_argument("--method", choices=("rq_rag", "ra_isf"), default="rq_rag", help="how the trained model answers (default: rq_rag)")
    parser.add_argument("--questions", type=Path, metavar="FILE", help="your own questions with answers, instead of generated ones")
    parser.add_argument("--reader", default="jsonl", help="the schema of --questions, such as hotpotqa (default: Refinery's own)")
    parser.add_argument("--skip-unreadable", action="store_true", help="leave out documents that cannot be read, now and in every run")
    parser.add_argument("--labels", type=Path, metavar="FOLDER", help="your own labels, TASK/train.jsonl and TASK/validation.jsonl")


def run(arguments: argparse.Namespace) -> None:
    """Write the project and name the next command."""
    from refinery.project.new import PASSAGES, NewProject, new_project
    from refinery.project.preview import preview_lines
    from refinery.text import printable

    written = new_project(
        NewProject(
            folder=arguments.project,
            documents=arguments.documents,
            teacher=arguments.teacher,
            model=arguments.model,
            api_key_env=arguments.api_key_env,
            base=arguments.base,
            method=arguments.method,
            questions=arguments.questions,
            reader=arguments.reader,
            labels=arguments.labels,
            skip_unreadable=arguments.skip_unreadable,
        )
    )
    cut = arguments.project / PASSAGES
    for line in [*map(str, written), *(preview_lines(cut) if cut.exists() else [])]:
        print(printable(line))
    _print_faults(arguments.project)
    print(printable(f"next: refinery run {arguments.project} --dry-run"))


def _print_faults(folder: Path) -> None:
    """Print what would stop the project now: it is the user's own, so its servers are asked with their keys."""
    from refinery.project.jobs import jobs_of
    from refinery.project.preflight import faults_of, print_faults
    from refinery.project.project import read_project

    with chdir(folder):
        jobs = jobs_of(read_project(Path()), where=str(folder))
        print_faults(faults_of([*jobs.values()], [job.output for job in jobs.values() if job.output]))
