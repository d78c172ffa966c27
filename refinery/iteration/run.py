"""Run rounds until the validation score stops improving. Finished steps are kept, so the same command continues an interrupted run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refinery.iteration.overlap import check_overlap
from refinery.iteration.recipe import IterateRecipe
from refinery.iteration.rounds import Steps, jobs_for, round_steps, test_steps
from refinery.iteration.table import Round, read_round, rounds_table, write_rounds
from refinery.project.jobs import Job
from refinery.project.process import log_of, run_process
from refinery.project.run import Runner, run_jobs


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best round, the reason for stopping (`validation` or `rounds`), and the tables to print."""

    best: int
    stopped: str
    tables: list[str]
    rounds: list[Round]


def iterate(recipe: IterateRecipe, *, runner: Runner = run_process) -> Outcome:
    """Run the rounds, then the test.

    Raises RecipeError if a training question is evaluated, and what `run_jobs` raises.
    """
    check_overlap(recipe)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    rounds, outcome = list[Round](), dict[str, Any]()
    for number in range(recipe.rounds + 1):
        _run(recipe, round_steps(recipe, number), runner)
        rounds.append(read_round(recipe, number))
        outcome = {"best": best_round(rounds, recipe.min_gain), "stopped": _stopped(recipe, rounds), "metric": recipe.metric}
        write_rounds(recipe, rounds, outcome)
        if outcome["stopped"]:
            break
    tested = _run(recipe, test_steps(recipe, outcome["best"]), runner)
    shown = [log_of(job, recipe.output_dir).read_text(encoding="utf-8").rstrip() for job in tested.values() if job.shown]
    return Outcome(outcome["best"], str(outcome["stopped"]), [rounds_table(recipe, rounds), *shown], rounds)


def all_steps(recipe: IterateRecipe) -> Steps:
    """Every step of every round, for a plan."""
    steps = [round_steps(recipe, number, planned=True) for number in range(recipe.rounds + 1)]
    return {name: step for of_round in steps for name, step in of_round.items()}


def best_round(rounds: Sequence[Round], min_gain: float) -> int:
    """The number of the best round: the first, and each later one that exceeds the best so far by more than `min_gain` points."""
    best = rounds[0]
    for one in rounds[1:]:
        if one.score > best.score + min_gain:
            best = one
    return best.number


def _stopped(recipe: IterateRecipe, rounds: Sequence[Round]) -> str | None:
    """The reason for stopping, or None if another round follows."""
    last = rounds[-1].number
    if last - best_round(rounds, recipe.min_gain) >= recipe.patience:
        return "validation"
    return "rounds" if last == recipe.rounds else None


def _run(recipe: IterateRecipe, steps: Steps, runner: Runner) -> Mapping[str, Job]:
    if not steps:
        return {}
    jobs = jobs_for(recipe, steps)
    run_jobs(jobs, recipe.output_dir, at_once=recipe.at_once, runner=runner)
    return jobs
