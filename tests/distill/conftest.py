import json
from pathlib import Path

import pytest
import yaml

from refinery.contract.records import Question, write_records


@pytest.fixture
def mock_recipe(tmp_path):
    """Write a decomposition recipe over `count` questions against an endpoint; values replace or extend it, `teacher` its endpoint."""

    def write(url: str, *, count: int = 40, teacher: dict | None = None, **values) -> Path:
        write_records(tmp_path / "questions.jsonl", [Question(id=f"q{i}", text=f"Who directed film {i}?") for i in range(count)])
        recipe = {
            "task": "decomposition",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "teacher": {"base_url": f"{url}/v1", "model": "mock", "max_tries": 3} | (teacher or {}),
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        return tmp_path / "recipe.yaml"

    return write


@pytest.fixture
def read_metrics(tmp_path):
    return lambda name="run": json.loads((tmp_path / name / "metrics.json").read_text())
