"""A project's steps on a Ray cluster: `refinery ray` takes the places of `distill`, `infer` and `index`, as far as their work is divided.

All other steps run here, as without a cluster, and so do those of the three that one process has to do; a line says why. Whether a step is
up to date does not depend on where it ran.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refinery.project.jobs import COMMAND, Job
from refinery.project.plan import CommandOf
from refinery.project.process import run_process
from refinery.project.run import Runner, say, set_aside
from refinery.runtime.run.run_dir import RunDir, read_run
from refinery.runtime.run.shards import holds_something
from refinery.text import printable

_DIVIDED = ("distill", "infer")
_ONE_WRITER = "sqlite"  # the kind of store that is a file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step runs: on the cluster, by these words of a command, or here, for a reason; for no reason if it has nothing to divide."""

    words: tuple[str, ...] = ()
    here: str = ""


def print_places(jobs: Mapping[str, Job], command_of: CommandOf, shards: int) -> None:
    """Print where each of these steps would run if it began now."""
    places = {name: place_of(job, command_of) for name, job in jobs.items()}
    divided = [name for name, place in places.items() if place.words]
    print(printable(f"On Ray, in {shards} shards: {', '.join(divided) or 'no step'}."))
    for name, place in places.items():
        if place.here:
            print(printable(f"Here: {name}, because {place.here}."))


def place_of(job: Job, command_of: CommandOf) -> Place:
    """Where a step runs. Raises RecipeError for the recipe of an index that cannot be read."""
    if job.stage:
        here = next(filter(None, _reasons(job)), "")
        return Place(here=here) if here else Place((job.stage, *job.words))
    divided: Callable[[Sequence[str]], Place] | None = getattr(command_of(job.command), "divided", None)
    if divided is None:
        return Place()
    here = _of_environment(job)
    return Place(here=here) if here else divided(job.words)


def runner_on_ray(words: Sequence[str], command_of: CommandOf, here: Runner = run_process) -> Runner:
    """A runner that divides what can be divided on a cluster, which `words` of `refinery ray` name, and leaves the rest to `here`."""

    async def run(job: Job, folder: Path) -> None:
        place = place_of(job, command_of)
        if place.here:
            say(f"{job.name}: here, because {place.here}")
        if not place.words:
            await here(job, folder)
            return
        if job.stage and job.output:
            _make_room(job, job.output, folder)
        await here(replace(job, command="ray", arguments=(*COMMAND, "ray", *place.words, *words)), folder)

    return run


def _make_room(job: Job, output: Path, folder: Path) -> None:
    """Let shards be merged again, which are still beside what was merged from them."""
    if RunDir(output).finished:
        set_aside(output, job, folder)
    elif output.exists():  # a merge that was stopped
        shutil.rmtree(output)


def _reasons(job: Job) -> Iterator[str]:
    """Why one process has to do a stage's step."""
    values: Mapping[str, Any] = job.values
    if job.stage not in _DIVIDED:
        yield "training is not divided (an accelerate file starts it on several GPUs)"
    if job.arguments[: len(COMMAND)] != COMMAND:
        yield "accelerate starts its processes on this machine"
    if values.get("shard"):
        yield f"shard={values['shard']} is one shard already"
    if values.get("hub"):
        yield f"hub={values['hub']} receives whole runs only"
    if values.get("store") and values.get("store_kind", _ONE_WRITER) == _ONE_WRITER:
        yield f"store={values['store']} cannot serve several shards"
    yield _of_environment(job)
    if job.output and holds_something(job.output) and not _is_merged(job.output):
        yield f"{job.output} was begun without shards, and is continued"


def _of_environment(job: Job) -> str:
    names = ", ".join(sorted(job.environment))
    return f"the values of {names} are not sent to other machines" if names else ""


def _is_merged(output: Path) -> bool:
    return (output / "run.json").exists() and bool(read_run(output).get("shards"))
