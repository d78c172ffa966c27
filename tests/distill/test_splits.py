"""A question's split names the file of its labels: never a path, and never another file of the run."""

import json

import pytest
import yaml

from distill.__main__ import main
from distill.recipe import DistillRecipe
from distill.run import run
from distill.writing.merge import merge
from refinery.contract.records import Decomposition, Question, SubQuestion, read_records
from refinery.errors import RunDirError

STEPS = [SubQuestion(text="Who directed Dune?"), SubQuestion(text="Where was #1 born?")]


@pytest.fixture
def recipe(tmp_path):
    """Write one question of that split, and a recipe that needs no teacher; the run's folder lies three below `tmp_path`."""

    def write(split: str, **values) -> dict:
        row = Question(id="q", text="Where was Dune's director born?", decomposition=STEPS).model_dump(exclude_none=True)
        (tmp_path / "questions.jsonl").write_text(json.dumps(row | {"split": split}) + "\n")
        values = {"output_dir": str(tmp_path / "a" / "b" / "run"), "options": {"by": "annotations"}} | values
        recipe = {"task": "decomposition", "questions": [str(tmp_path / "questions.jsonl")]} | values
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        return recipe

    return write


@pytest.mark.parametrize(
    "split",
    ["../../../stolen", "/no/such/folder/x", "..", ".hidden", "a/b", "a\\b", "train\n", "train.", "-n", "x" * 65, "тест", "a\x00b"],
)
def test_a_split_that_is_a_path_is_refused_by_its_row(recipe, tmp_path, capsys, split):
    recipe(split)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert main([str(tmp_path / "recipe.yaml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'questions.jsonl'}:1: field 'split': ")
    assert "cannot name a file of labels. Use at most 64 letters" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "questions.jsonl", "recipe.yaml"]


@pytest.mark.parametrize("split", ["failures", "passages", "train.messages", "Failures"])
def test_a_split_named_as_another_file_of_the_run_is_refused(recipe, tmp_path, capsys, split):
    recipe(split)
    assert main([str(tmp_path / "recipe.yaml")]) == 2
    assert f"'{split}' cannot name a file of labels" in capsys.readouterr().err


@pytest.mark.parametrize("split", ["train", "dev-small", "confusable_test", "v1.0", "2017", "x" * 64])
def test_other_names_stay_as_they_are(recipe, tmp_path, split):
    recipe(split)
    assert main([str(tmp_path / "recipe.yaml")]) == 0
    assert [row.question_id for row in read_records(tmp_path / "a" / "b" / "run" / f"{split}.jsonl", Decomposition)] == ["q"]


def test_a_split_without_labels_has_an_empty_file(recipe, tmp_path, caplog):
    values = recipe("validation")
    divided, whole = (tmp_path / f"{name}.jsonl" for name in ("questions", "validation"))
    (tmp_path / "test.jsonl").touch()
    whole.write_text(json.dumps({"id": "whole", "text": "Who directed Dune?", "split": "validation"}) + "\n")
    divided.write_text(divided.read_text().replace("validation", "train"))
    names = [str(divided), str(whole), str(tmp_path / "test.jsonl")]
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values | {"questions": names, "max_failure_share": 1}))
    assert main([str(tmp_path / "recipe.yaml")]) == 0
    output = tmp_path / "a" / "b" / "run"
    assert [(output / f"{split}.jsonl").stat().st_size > 0 for split in ("train", "validation", "test")] == [True, False, False]
    warned = [said.partition(": ")[0] for record in caplog.records if "no row of this split" in (said := record.getMessage())]
    assert warned == [str(output / f"{split}.jsonl") for split in ("test", "validation")]


def test_a_shards_counts_cannot_lead_the_merged_files_elsewhere(recipe, tmp_path):
    shard = tmp_path / "a" / "shard"
    run(DistillRecipe.model_validate(recipe("train", output_dir=str(shard), shard="0/1")), resume=False)
    metrics = json.loads((shard / "metrics.json").read_text())
    (shard / "metrics.json").write_text(json.dumps(metrics | {"rows_by_split": {"../../stolen": 1}}))
    (tmp_path / "stolen.parquet").write_bytes((shard / "train.parquet").read_bytes())
    with pytest.raises(RunDirError, match=r"metrics\.json: rows_by_split names '\.\./\.\./stolen', which is not a split"):
        merge(tmp_path / "x" / "y" / "merged", [shard])
    assert not (tmp_path / "x").exists()


def test_a_question_in_memory_cannot_carry_one_either():
    with pytest.raises(ValueError, match="cannot name a file of labels"):
        Question(id="q", text="Who?", split="../x")
