"""The licenses of what the papers' recipes train and ask are stated."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "recipes"
OWNERS = "meta-llama|google|google-bert|Qwen|facebook|BAAI|selfrag|zorowin123|luohy|sentence-transformers"
STATED = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Licenses\n")[2]


@pytest.mark.parametrize("paper", ["ra_isf", "rq_rag", "re_thinking", "migres", "search_r1", "baselines", "instruct"])
def test_every_model_that_a_recipe_names_has_its_license_stated(paper: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / paper).rglob("*.yaml")))
    named = set(re.findall(rf"\b(?:{OWNERS})/[\w.-]+", text))

    assert {name for name in named if f"`{name}`" not in STATED and f"`{name.partition('/')[2]}`" not in STATED} == set()
