"""`python -m distill RECIPE`: label questions with a teacher; `python -m distill merge OUT RUN...`: join shards."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.recipe import DistillRecipe
from refinery.runtime.run.command import merge_shards, run_stage
from refinery.text import printable

DESCRIPTION = "Label questions with a teacher: self-knowledge, relevance, decompositions, control-token trajectories."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage from the command line; `merge OUT RUN...` joins the runs of all shards."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["merge"]:
        return merge_shards("distill", _merge, arguments[1:])
    return run_stage(
        "distill",
        DESCRIPTION,
        DistillRecipe,
        preview=_preview,
        run=_run,
        report=lambda recipe, metrics: _report(metrics, recipe.output_dir),
        argv=arguments,
    )


def _run(recipe: DistillRecipe, *, resume: bool) -> dict[str, Any]:
    from distill.run import run

    return run(recipe, resume=resume)


def _preview(recipe: DistillRecipe) -> None:
    from distill.viewing.preview import estimate, first_prompts

    for number, prompt in enumerate(asyncio.run(first_prompts(recipe, 3)), 1):
        print(printable(f"--- example {number}\n{prompt}\n"))
    print(asyncio.run(estimate(recipe)))


def _merge(out: Path, runs: Sequence[Path]) -> None:
    from distill.writing.merge import merge

    _report(merge(out, runs), out)


def _report(metrics: dict[str, Any], folder: Path) -> None:
    from distill.viewing.summary import run_summary

    print(run_summary(metrics, folder))


if __name__ == "__main__":
    sys.exit(main())
