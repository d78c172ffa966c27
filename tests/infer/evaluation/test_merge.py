"""Runs of shards joined into one, which is what one process would have made."""

import json
import shutil

import pytest
import yaml

from infer.__main__ import main
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.server import serving

QUESTIONS = [
    Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i % 7}"], supporting=[str(i)], split="test") for i in range(40)
]
PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is a film directed by Maria {i}.") for i in range(40)]


@pytest.fixture
def server():
    with serving(lambda prompt: f"Maria {len(prompt) % 7}") as server:
        yield server


@pytest.fixture
def answer(tmp_path, server):
    """Run a shard, or the whole, and return its folder; more words override the recipe."""
    write_records(tmp_path / "questions.jsonl", QUESTIONS)
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    values = {
        "decoder": "rag",
        "questions": [str(tmp_path / "questions.jsonl")],
        "output_dir": str(tmp_path / "whole"),
        "endpoint": {"base_url": server.base_url, "model": "scripted"},
        "retriever": {"passages": str(tmp_path / "passages.jsonl")},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))

    def go(shard=None, *more):
        folder = tmp_path / (f"shard-{shard[0]}" if shard else "whole")
        parts = [f"shard={shard}", f"output_dir={folder}"] if shard else []
        assert main([str(tmp_path / "recipe.yaml"), *parts, *more]) == 0
        return folder

    return go


@pytest.fixture
def shards(answer):
    return [answer(f"{number}/3") for number in range(3)]


def metrics(folder):
    return json.loads((folder / "metrics.json").read_text())


def refused(capsys, *words):
    assert main(["merge", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_merged_shards_are_what_one_process_makes(answer, shards, tmp_path, server):
    asked, merged = server.requests, tmp_path / "merged"
    assert asked == 40
    assert main(["merge", str(merged), *map(str, shards[::-1])]) == 0
    assert server.requests == asked
    whole = answer()
    found, wanted = ({p.question_id: p for p in read_records(run / PREDICTIONS_FILE, Prediction)} for run in (merged, whole))
    assert list(found) != list(wanted)  # they are in the order of the shards
    assert found == wanted
    one, many = metrics(whole), metrics(merged)
    for key in ("questions", "failed", "causes", "questions_hash", "corpus_hash", "inputs", "prompts", "options", "model", "retriever"):
        assert many[key] == one[key], key
    for result in (one, many):
        del result["results"]["rag"]["cost_per_question"]["seconds"], result["cost"]["seconds"]
    assert many["results"] == one["results"]
    assert many["cost"] == one["cost"]
    assert many["endpoints"]["model"]["requests"] == 40


def test_a_merged_run_is_shown_scored_and_compared_like_any_other(answer, shards, tmp_path, capsys):
    from refinery.cli import main as refinery

    merged = tmp_path / "merged"
    assert main(["merge", str(merged), *map(str, shards)]) == 0
    before = metrics(merged)
    assert refinery(["rescore", str(merged)]) == 0
    assert metrics(merged) == before
    whole = answer()
    assert refinery(["compare", str(merged), str(whole), "--baseline", str(whole)]) == 0
    assert "+0.0 [+0.0, +0.0]" in capsys.readouterr().out
    assert refinery(["view", str(merged), "--output", str(tmp_path / "page.html")]) == 0


def test_every_shard_must_be_there_once_and_of_one_recipe(answer, shards, tmp_path, capsys):
    out = tmp_path / "merged"
    assert "shard 1/3 is missing." in refused(capsys, out, shards[0], shards[2])
    assert "shard-1: is shard 1/3, and so is " in refused(capsys, out, *shards, shards[1])
    assert "whole: is not a shard of an infer run." in refused(capsys, out, answer())
    shutil.rmtree(shards[2])
    answer("2/3", "max_new_tokens=7")
    assert "was made with a different recipe than " in refused(capsys, out, *shards)
    assert not out.exists()


def test_shards_over_changed_questions_are_refused(answer, shards, tmp_path, capsys):
    shutil.rmtree(shards[2])
    write_records(tmp_path / "questions.jsonl", [*QUESTIONS, Question(id="new", text="Who?")])
    answer("2/3")
    assert "shard-2: was made from other inputs than " in refused(capsys, tmp_path / "merged", *shards)


def test_a_shard_without_questions_says_so(answer, tmp_path, capsys):
    (tmp_path / "questions.jsonl").write_text(QUESTIONS[0].model_dump_json() + "\n")
    said = []
    for number in range(2):
        said.append(main([str(tmp_path / "recipe.yaml"), f"shard={number}/2", f"output_dir={tmp_path / str(number)}"]))
    assert sorted(said) == [0, 2]
    assert "no question belongs to shard" in capsys.readouterr().err
