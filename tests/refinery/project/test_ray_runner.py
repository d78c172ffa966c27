"""The steps of a project on a cluster, with a double of Ray, and each step in this process."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from refinery.cli import main
from refinery.commands import command_of
from refinery.contract.records import Decomposition, Passage, Question, SubQuestion, read_records, write_records
from refinery.errors import RecipeError
from refinery.project.in_process import runner_here
from refinery.project.jobs import jobs_of
from refinery.project.process import StepFailed, run_process
from refinery.project.project import read_project
from refinery.project.ray_runner import place_of, runner_on_ray
from refinery.project.run import run_jobs
from refinery.retrievers.index.manifest import read_manifest

STEPS = [SubQuestion(text="Who directed Dune?"), SubQuestion(text="Where was #1 born?")]
LABELS = {"task": "decomposition", "options": {"by": "annotations"}, "questions": ["questions.jsonl"], "output_dir": "runs/labels"}
COMMANDS = {
    "index": ["index", "passages.jsonl", "--output", "runs/index", "--update"],
    "labels": ["distill", "labels.yaml"],
    "split": ["split", "questions.jsonl", "--output", "runs/questions"],
}


@pytest.fixture
def project(folder):
    """A project whose steps call no model."""
    write_records(
        "questions.jsonl", [Question(id=f"q{i}", text=f"Who made film {i}?", decomposition=STEPS, split="train") for i in range(20)]
    )
    write_records("passages.jsonl", [Passage(id=f"p{i}", title=f"Film {i}", text=f"It was made in {1900 + i}.") for i in range(20)])
    Path("labels.yaml").write_text(yaml.safe_dump(LABELS))
    return folder


def jobs(commands=COMMANDS, **keys):
    steps = {name: {"command": command, **keys} for name, command in commands.items()}
    Path("refinery.yaml").write_text(yaml.safe_dump({"steps": steps}))
    return jobs_of(read_project(Path()), where="refinery.yaml")


def run(*, shards=2, commands=COMMANDS):
    """Do the steps on the double of Ray. Returns the names of those that ran."""
    runner = runner_on_ray(["--shards", str(shards)], command_of, here=runner_here(main))
    return list(run_jobs(jobs(commands), Path(), at_once=1, runner=runner))


def rows(folder="runs/labels"):
    return sorted(row.question_id for row in read_records(Path(folder) / "train.jsonl", Decomposition))


def test_distill_and_index_are_divided_and_what_cannot_be_runs_here(ray, project):
    assert run(commands={name: COMMANDS[name] for name in ("index", "labels")}) == ["index", "labels"]
    assert [words[0] for words in ray.commands] == ["index", "index", "distill", "distill"]
    assert read_manifest(Path("runs/index")).num_passages == 20
    assert rows() == sorted(f"q{i}" for i in range(20))


def test_a_step_is_up_to_date_wherever_it_ran(ray, project):
    run()
    assert run(shards=3) == []
    assert list(run_jobs(jobs(), Path(), at_once=1, runner=run_process)) == []


def test_the_same_command_continues_after_a_lost_worker(ray, project):
    ray.lost = ("1/2",)
    with pytest.raises(StepFailed, match="step index: shard 1/2: The worker died unexpectedly"):
        run()
    ray.lost = ()
    assert run() == list(COMMANDS)
    assert len(rows()) == 20


def test_changed_labels_are_merged_again_from_their_shards(ray, project):
    run()
    Path("labels.yaml").write_text(yaml.safe_dump(LABELS | {"limit": 12}))
    assert run() == ["labels"]
    assert (len(rows()), len(rows("previous/labels"))) == (12, 20)


def test_a_merge_that_was_stopped_is_repeated(ray, project):
    run()
    Path("runs/labels/metrics.json").unlink()
    Path(".refinery/labels.json").unlink()
    assert run() == ["labels"]
    assert len(rows()) == 20
    assert not Path("previous").exists()


def test_what_was_begun_without_shards_is_continued_here(ray, project, capsys):
    run_jobs(jobs(), Path(), at_once=1, runner=runner_here(main))
    write_records("passages.jsonl", [Passage(id="p", title="Film", text="It was made.")])
    Path("labels.yaml").write_text(yaml.safe_dump(LABELS | {"limit": 12}))
    assert run() == ["index", "labels"]
    said = capsys.readouterr().err
    assert "labels: here, because runs/labels was begun without shards, and is continued" in said
    assert "index: here, because one process updates an index that is there" in said
    assert (ray.commands, len(rows())) == ([], 12)


@pytest.mark.parametrize(
    ("command", "keys", "why"),
    [
        (["train", "labels.yaml"], {}, "training is not divided (an accelerate file starts it on several GPUs)"),
        (["infer", "labels.yaml"], {"accelerate": "ddp"}, "accelerate starts its processes on this machine"),
        (["distill", "labels.yaml", "shard=0/2"], {}, "shard=0/2 is one shard already"),
        (["distill", "labels.yaml", "hub={repo: me/labels}"], {}, "hub={'repo': 'me/labels'} receives whole runs only"),
        (["distill", "labels.yaml", "store=replies.sqlite"], {}, "store=replies.sqlite cannot serve several shards"),
        (["infer", "labels.yaml"], {"environment": {"B": "1", "A": "2"}}, "the values of A, B are not sent to other machines"),
        (["index", "p.jsonl", "--output", "x"], {"environment": {"A": "2"}}, "the values of A are not sent to other machines"),
        (["index", "p.jsonl", "--output", "x", "--shard", "0/2"], {}, "--shard is one shard already"),
        (["index", "p.jsonl", "--output", "x", "--set", "name=opensearch"], {}, "one process builds an index for opensearch"),
        (["split", "questions.jsonl", "--output", "x"], {}, ""),
    ],
)
def test_a_step_that_one_process_has_to_do_says_why(project, command, keys, why):
    (job,) = jobs({"step": command}, **keys).values()
    place = place_of(job, command_of)
    assert (place.words, place.here) == ((), why)


def test_the_plan_says_where_steps_run(ray, project, capsys):
    jobs(COMMANDS | {"model": ["train", "labels.yaml", "output_dir=runs/model"]})
    assert main(["run", ".", "--on", "ray", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "On Ray, in 8 shards: index, labels." in said
    assert "Here: model, because training is not divided" in said
    assert ray.commands == []


def test_without_ray_nothing_is_begun(project, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    jobs()
    assert main(["run", ".", "--on", "ray"]) == 2
    assert "Ray is not installed. Install it: pip install " in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--shards", "2"], "--shards says how steps are divided. Add --on ray, or leave it out."),
        (["--gpus", "1"], "--gpus says how steps are divided. Add --on ray, or leave it out."),
        (["--on", "ray", "--stand-in"], "--stand-in does all steps in one process, so leave out --on ray."),
    ],
)
def test_words_that_do_not_go_together_are_refused(ray, project, words, fault, capsys):
    jobs()
    assert main(["run", ".", *words]) == 2
    assert re.search(re.escape(fault), capsys.readouterr().err)


def test_the_recipe_of_an_index_that_cannot_be_read_is_refused(project):
    (job,) = jobs({"index": ["index", "p.jsonl", "--output", "x", "--set", "name=bm52"]}).values()
    with pytest.raises(RecipeError, match="bm52"):
        place_of(job, command_of)
