"""The table of the shipped recipes' memory and time, in accelerate_configs/README.md."""

from pathlib import Path

from benchmarks.train.recipe_table import HEAD, rows
from refinery.reporting.markdown import table


def test_the_page_has_the_table_that_the_plans_make():
    page = (Path(__file__).parents[3] / "accelerate_configs" / "README.md").read_text(encoding="utf-8")
    head, _, lora = table(HEAD, [*rows("llama3_8b_lora")])
    assert head in page
    assert lora in page
