import subprocess
import sys

import pytest

LIGHT_MODULES = [
    "refinery.cli",
    "refinery.contract.records",
    "refinery.runtime.recipe",
    "refinery.contract.segments",
    "refinery.contract.formats",
    "refinery.runtime.plugins",
    "refinery.runtime.run_dir",
    "refinery.runtime.stage",
    "refinery.tasks.base",
    "refinery.tasks.selection",
    "refinery.runtime.progress",
    "refinery.questions.base",
    "refinery.llms.build",
    "refinery.prompts.render",
    "refinery.llms.base",
    "refinery.llms.weights.checkpoint",
    "refinery.llms.served.client",
    "refinery.retrievers.base",
]
STAGE_RECIPES = ["distill.recipe", "train.recipe", "infer.recipe"]
HEAVY = {"torch", "transformers", "datasets", "trl", "peft", "accelerate", "openai", "bm25s", "numpy", "bs4", "lxml", "pypdf", "docx"}


@pytest.mark.parametrize("module", [*LIGHT_MODULES, *STAGE_RECIPES])
def test_importing_it_loads_no_heavy_library(module):
    script = f"import {module}, sys; print(*sorted({HEAVY} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
