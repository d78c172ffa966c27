"""`python -m distill RECIPE`: label questions with a teacher."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from distill.recipe import DistillRecipe
from refinery.stage import run_stage

DESCRIPTION = "Label questions with a teacher: self-knowledge, relevance, decompositions, control-token trajectories."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage from the command line."""
    return run_stage("distill", DESCRIPTION, DistillRecipe, preview=_preview, run=_run, report=_report, argv=argv)


def _run(recipe: DistillRecipe, *, resume: bool) -> dict[str, Any]:
    from distill.run import run

    return run(recipe, resume=resume)


def _preview(recipe: DistillRecipe) -> None:
    from distill.preview import first_prompts

    for number, prompt in enumerate(asyncio.run(first_prompts(recipe, 3)), 1):
        print(f"--- example {number}\n{prompt}\n")


def _report(metrics: dict[str, Any]) -> None:
    print(json.dumps(metrics, indent=2))


if __name__ == "__main__":
    sys.exit(main())
