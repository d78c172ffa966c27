"""What `refinery run` prints at its end: the steps' own output where they are to be shown, the page, and how to serve the model."""

from collections.abc import Mapping
from pathlib import Path

from refinery.project.jobs import Job
from refinery.project.process import log_of
from refinery.project.project import Project
from refinery.text import printable


def print_report(project: Project, jobs: Mapping[str, Job], folder: Path, *, whole: bool) -> None:
    """Print the shown steps' output, which was made in this run or an earlier one, and the next command if the `whole` project is done."""
    for job in jobs.values():
        if job.shown:
            print(printable(log_of(job, project.folder).read_text(encoding="utf-8").rstrip()))
    if project.serve and whole:
        print(printable(f"serve it: refinery serve {folder}"))
