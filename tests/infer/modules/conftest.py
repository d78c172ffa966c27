"""Runs of `refinery evaluate-modules` on the sample's real rows, with a scripted model behind a chat server."""

import json
from pathlib import Path

import pytest
import yaml
from helpers.module_script import Gold

from refinery.cli import main
from refinery.demo.teacher.server import serving
from refinery.questions.base import read_questions

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data"
FILES = [DATA / "two_wiki/train.json", DATA / "musique/train.jsonl"]


@pytest.fixture(scope="session")
def gold():
    """A model that replies with the annotations of the sample's questions."""
    return Gold(read_questions(FILES, reader="by_folder"))


@pytest.fixture
def evaluated(tmp_path, capsys, gold):
    """Run a module; a dictionary for each line of the table by what it is measured on, or the error."""

    def run(decoder: str, module: str, reply=None, *arguments: str, judged: bool = False, **values) -> dict[str, dict] | str:
        with serving(reply or gold) as server:
            model = {"base_url": server.base_url, "model": "scripted", "price": {"prompt": 2.0, "completion": 8.0}}
            values |= {"sub_models": {"judge": model}} if judged else {}
            shared = {"questions": list(map(str, FILES)), "reader": "by_folder", "retriever": {"name": "candidates"}, "endpoint": model}
            recipe = {"decoder": decoder, "module": module, "output_dir": str(tmp_path / "run")} | shared | values
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
            capsys.readouterr()
            code = main(["evaluate-modules", str(tmp_path / "recipe.yaml"), "--format", "json", *arguments])
            printed = capsys.readouterr()
        return printed.err if code else {line["measured_on"]: line for line in json.loads(printed.out)}

    return run


@pytest.fixture
def sample() -> Path:
    """The folder of the sample's datasets."""
    return DATA


@pytest.fixture
def measure():
    """The means of one line's measures."""

    def means(line: dict, *names: str) -> list[float]:
        return [line["measures"][name]["mean"] for name in names]

    return means
