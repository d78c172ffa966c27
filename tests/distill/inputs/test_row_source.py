"""Which rows a labeling run takes: a sample of each file, without the rows that cannot be read."""

import json

import pytest
import yaml

from distill.__main__ import main
from refinery.runtime.files.fingerprint import text_fingerprint

HOPS = [{"question": question, "answer": "Ann", "paragraph_support_idx": None} for question in ("Who?", "Where?")]
ROWS = [
    {"id": f"2hop_{number}", "question": f"Who made film {number}?", "answer": "Ann", "question_decomposition": HOPS}
    for number in range(40)
]


@pytest.fixture
def labeled(tmp_path):
    """Run a recipe over these rows, of which one is odd: its exit status, metrics and the ids of its labels."""

    def run(**values):
        rows = [*ROWS[:9], {"id": "odd"}, *ROWS[9:]]
        (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        recipe = {
            "task": "decomposition",
            "options": {"by": "annotations"},
            "questions": [str(tmp_path / "train.jsonl")],
            "reader": "musique",
            "output_dir": str(tmp_path / "run"),
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        if status := main([str(tmp_path / "recipe.yaml")]):
            return status, {}, []
        labels = [json.loads(line)["question_id"] for line in (tmp_path / "run" / "train.jsonl").read_text().splitlines()]
        return status, json.loads((tmp_path / "run" / "metrics.json").read_text()), labels

    return run


def test_an_odd_row_is_skipped_and_named_in_the_metrics(labeled):
    status, metrics, labels = labeled(on_bad_row="skip")
    assert (status, metrics["questions"], len(labels)) == (0, 40, 40)
    assert metrics["bad_rows"]["skipped"] == 1
    assert "train.jsonl:10: field 'question': Field required." in metrics["bad_rows"]["first"][0]


def test_by_default_it_stops_the_run(labeled, capsys):
    assert labeled()[0] == 2
    assert "train.jsonl:10: field 'question': Field required." in capsys.readouterr().err


def test_a_sample_is_labeled_and_stated(labeled):
    _, metrics, labels = labeled(on_bad_row="skip", sample=8, sample_seed=1)
    assert len(labels) == 8
    assert metrics["sample"] == {"size": 8, "seed": 1, "ids_hash": text_fingerprint(sorted(labels))}
    assert labels == [row["id"] for row in ROWS if row["id"] in labels]


def test_a_sample_larger_than_a_file_stops_the_run(labeled, capsys):
    assert labeled(on_bad_row="skip", sample=41)[0] == 2
    assert "train.jsonl: has 40 questions, and `sample` asks for 41." in capsys.readouterr().err


def test_a_task_that_chooses_its_rows_takes_no_sample(labeled, capsys):
    assert labeled(task="questions", options={}, sample=8, questions=[], teacher={"model": "m"})[0] == 2
    assert "sample: task 'questions' chooses its own rows. Set `limit`" in capsys.readouterr().err
