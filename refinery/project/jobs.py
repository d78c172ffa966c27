"""A project's steps as jobs: what each runs, which files it reads and writes, and which jobs it waits for.

All of that follows from the paths in the step. A step that names another's output needs it, so no step has to say so.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from refinery.errors import RecipeError
from refinery.project.project import Project, Step
from refinery.runtime.recipe import read_values
from refinery.runtime.recipes.shipped_files import accelerate_file
from refinery.runtime.recipes.stages import stages
from refinery.runtime.recipes.yaml_file import read_yaml
from refinery.text import did_you_mean

# What the stages call their output, and the commands.
_OUTPUT_KEY, _OUTPUT_FLAG = "output_dir", "--output"

_OVERRIDE = re.compile(r"[\w.]+=")

# -P, because a folder of the user's, such as `train`, must not take the place of a stage.
COMMAND = (sys.executable, "-P", "-m", "refinery.cli")


@dataclass(frozen=True, slots=True)
class Job:
    """One step, ready to run. `texts` are the texts among its values, of which some are paths; `values` is all that it depends on."""

    name: str
    stage: str  # or empty, for another command
    words: tuple[str, ...]  # of its command: a stage's recipe and overrides, or a command's arguments
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    output: Path | None
    texts: frozenset[str]
    values: Any
    needs: tuple[str, ...] = ()
    shown: bool = False
    command: str = ""  # the first word: a stage or a command
    then: tuple[tuple[str, ...], ...] = ()  # what is done next in the same output, each a command's words
    entry: str = ""  # the step in the project's file, of which this is one variant
    accelerate: str | None = None

    @property
    def reads(self) -> list[Path]:
        """The paths that the step names and that exist, without its own output."""
        paths = (Path(text) for text in sorted(self.texts))
        return [path for path in paths if path != self.output and _exists(path)]


def jobs_of(project: Project, *, where: str, until: str | None = None) -> dict[str, Job]:
    """The jobs by name, each after those that it needs; with `until`, only that one and those that it needs.

    Steps that the project skips are left out. Raises RecipeError for an unknown `until` or skipped step, a recipe that cannot be read, two
    steps with one output, and steps that need each other.
    """
    jobs = {name: _job(name, step, project, f"{where}: steps.{name}") for name, step in project.steps.items()}
    _check_outputs(jobs, where)
    if project.skip:
        jobs = _without_skipped(jobs, project, where)
    needs = _needs(jobs)
    ordered = {name: replace(jobs[name], needs=tuple(needs[name])) for name in _in_order(needs, where)}
    return ordered if until is None else _leading_to(until, ordered, where)


def stated_values(project: Project, jobs: Mapping[str, Job]) -> dict[str, Any]:
    """Everything that the project says of its jobs, by their names: values, variables, and words such as `key=value` by their keys."""
    return {"folder": str(project.folder)} | {name: _stated(job, project.steps[name]) for name, job in jobs.items()}


def _stated(job: Job, step: Step) -> dict[str, Any]:
    values = cast("dict[str, Any]", job.values) if job.stage else {"recipe": job.values, **_by_key(job.words)}
    then = [_by_key(words) for words in job.then]
    return {**values, "environment": dict(job.environment), "then": then, "reads": step.reads, "accelerate": step.accelerate}


def _by_key(words: Sequence[str]) -> dict[str, Any]:
    pairs = [word.removeprefix("--").partition("=") for word in words]
    return {"words": [word for word, _, value in pairs if not value], **{key: value for key, _, value in pairs if value}}


def _job(name: str, step: Step, project: Project, where: str) -> Job:
    stage, words = (step.command[0] if step.command[0] in stages() else ""), step.command
    if stage and len(words) < 2:
        raise RecipeError(f"{where}: names no recipe. Write [{stage}, RECIPE].")
    values = read_values(words[1], words[2:]) if stage else _values_of_command(words)
    texts = frozenset(_texts([values, step.then, step.reads]))
    return Job(
        name=name,
        stage=stage,
        words=tuple(words[1:]),
        arguments=_arguments(step, stage, where),
        environment={**project.environment, **step.environment},
        output=_output_of(values),
        texts=texts,
        values=values,
        shown=step.shown,
        command=words[0],
        then=tuple(tuple(each) for each in step.then),
        entry=step.entry or name,
        accelerate=step.accelerate,
    )


def _values_of_command(words: list[str]) -> Any:
    """The words and, if they are a recipe with overrides, as `evaluate-modules` takes them, also the recipe's values."""
    overrides = [word for word in words[2:] if _OVERRIDE.match(word)]
    return [words, read_values(words[1], overrides)] if overrides and words[1].endswith(".yaml") else words


def _arguments(step: Step, stage: str, where: str) -> tuple[str, ...]:
    """The command line."""
    if step.accelerate is None:
        return (*COMMAND, *step.command, *(["--resume"] if stage else []))
    if stage not in ("train", "infer"):
        raise RecipeError(f"{where}.accelerate: only train and infer are launched by accelerate.")
    try:
        file = accelerate_file(step.accelerate)
    except RecipeError as fault:
        raise RecipeError(f"{where}.accelerate: {fault}") from None
    launcher = (sys.executable, "-P", "-m", "accelerate.commands.launch", "--config_file", str(file))
    return (*launcher, *_free_port(file), "-m", stage, *step.command[1:], "--resume")


def _free_port(file: Path) -> list[str]:
    """Steps at the same time cannot all have the launcher's own port. On several machines, the file says which port they share."""
    values = read_yaml(file)
    return [] if "main_process_port" in values or values.get("num_machines", 1) > 1 else ["--main_process_port", "0"]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[str, Any]", value).values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)


def _output_of(values: Any) -> Path | None:
    if isinstance(values, Mapping):
        output = cast("Mapping[str, Any]", values).get(_OUTPUT_KEY)
        return Path(output) if isinstance(output, str) else None
    words = cast("list[Any]", values)
    if words and isinstance(words[0], list):
        return _output_of(words[1])
    return Path(words[words.index(_OUTPUT_FLAG) + 1]) if _OUTPUT_FLAG in words[:-1] else None


def _check_outputs(jobs: Mapping[str, Job], where: str) -> None:
    seen: dict[Path, str] = {}
    for job in jobs.values():
        if job.output and (first := seen.setdefault(job.output, job.name)) != job.name:
            raise RecipeError(f"{where}: steps '{first}' and '{job.name}' both write to {job.output}. Give one of them another output.")


def _needs(jobs: Mapping[str, Job]) -> dict[str, list[str]]:
    """The jobs that each job needs: it names their output or something in it, or, as a command such as `view .`, a folder around it."""
    written = {name: Path(os.path.normpath(job.output)) for name, job in jobs.items() if job.output}
    needs: dict[str, list[str]] = {}
    for name, job in jobs.items():
        named = {Path(os.path.normpath(text)) for text in job.texts if text and Path(text) != job.output}
        within = named.union(*(path.parents for path in named))
        around = frozenset[Path]() if job.stage else named
        needs[name] = [
            other for other, path in written.items() if other != name and (path in within or not around.isdisjoint(path.parents))
        ]
    return needs


def _without_skipped(jobs: Mapping[str, Job], project: Project, where: str) -> dict[str, Job]:
    """The jobs without those that are skipped or whose recipes need one of them. Other commands lose the words that name their outputs."""
    entries = {name: job.entry for name, job in jobs.items()}
    for name in project.skip:
        if name not in {*entries, *entries.values()}:
            raise _no_step(name, jobs, f"{where}: skip")
    needs = _needs(jobs)
    gone = {name for name, entry in entries.items() if not {name, entry}.isdisjoint(project.skip)}
    while more := {name for name, job in jobs.items() if name not in gone and job.stage and not gone.isdisjoint(needs[name])}:
        gone |= more
    outputs = {str(output) for name in gone if (output := jobs[name].output)}
    return {name: _shortened(job, project, outputs, where) for name, job in jobs.items() if name not in gone}


def _shortened(job: Job, project: Project, outputs: set[str], where: str) -> Job:
    step = project.steps[job.name]
    command = [word for word in step.command if word not in outputs]
    return job if command == step.command else _job(job.name, step.model_copy(update={"command": command}), project, f"{where}: {job.name}")


def _in_order(needs: Mapping[str, list[str]], where: str) -> list[str]:
    """Names, each after those it needs, otherwise in the project's order."""
    done: list[str] = []
    while len(done) < len(needs):
        ready = [name for name, needed in needs.items() if name not in done and all(other in done for other in needed)]
        if not ready:
            waiting = ", ".join(name for name in needs if name not in done)
            raise RecipeError(f"{where}: steps {waiting} need each other's outputs. Change the paths of one of them.")
        done.append(ready[0])
    return done


def _leading_to(until: str, jobs: Mapping[str, Job], where: str) -> dict[str, Job]:
    if until not in jobs:
        raise _no_step(until, jobs, where)
    wanted, waiting = set[str](), [until]
    while waiting:
        wanted.add(name := waiting.pop())
        waiting += jobs[name].needs
    return {name: job for name, job in jobs.items() if name in wanted}


def _no_step(name: str, jobs: Mapping[str, Job], where: str) -> RecipeError:
    return RecipeError(f"{where}: no step '{name}'.{did_you_mean(name, jobs)} Available: {', '.join(jobs)}.")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False
