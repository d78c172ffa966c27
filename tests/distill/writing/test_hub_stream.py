"""Labels that are pushed while they are made, to a hub on loopback: what is there at every moment, and after kills."""

import io
import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from refinery.contract.records import Question, write_records
from refinery.demo.teacher.server import Faults, serving

PROJECT = Path(__file__).parents[3]
COUNT = 60


def decompose(prompt: str) -> str:
    return '{"sub_questions": ["Who is it?", "Where is it?"]}'


@pytest.fixture
def recipe(tmp_path):
    """Write a decomposition recipe whose rows are pushed in parts of ten questions."""

    def write(base_url: str, repository: str, **values) -> Path:
        splits = ["train", "train", "dev-small"]
        rows = [Question(id=f"q{i}", text=f"Who directed film {i}?", split=splits[i % 3]) for i in range(COUNT)]
        write_records(tmp_path / "questions.jsonl", rows)
        own = {
            "task": "decomposition",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "teacher": {"base_url": base_url, "model": "mock", "calls_in_flight": 4, "max_tries": 1},
            "rows_in_flight": 4,
            "hub": {"to": repository, "questions_per_part": 10},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(own | values))
        return tmp_path / "recipe.yaml"

    return write


def pushed_ids(hub, repository: str) -> list[str]:
    """The questions of all rows that the dataset's card names, as they are on the hub now."""
    from pyarrow import parquet

    held = hub.repositories()[f"datasets/{repository}"]["branches"]["main"]
    folders = [entry["path"].removesuffix("*.parquet") for entry in configs(hub, repository)]
    files = [name for name in held if any(name.startswith(folder) for folder in folders)]
    tables = [parquet.read_table(io.BytesIO(hub.content(f"datasets/{repository}/resolve/main/{name}"))) for name in files]
    return [question for table in tables for question in table.column("question_id").to_pylist()]


def configs(hub, repository: str) -> list[dict]:
    values = yaml.safe_load(hub.text(f"datasets/{repository}/resolve/main/README.md").split("---")[1])
    return values.get("configs", [{"data_files": []}])[0]["data_files"]


def files_of(hub, repository: str) -> list[str]:
    return hub.repositories().get(f"datasets/{repository}", {"branches": {"main": []}})["branches"]["main"]


def test_a_finished_run_is_on_the_hub_with_its_final_card_and_without_the_token(hub, recipe, tmp_path):
    with serving(decompose, faults=Faults(refuse_every=20)) as server:
        done = hub.run("refinery", "distill", str(recipe(server.base_url, "me/whole")))
    assert done.returncode == 0, done.stderr
    labeled = [json.loads(line)["question_id"] for name in ("train", "dev-small") for line in (tmp_path / "run" / f"{name}.jsonl").open()]
    assert sorted(pushed_ids(hub, "me/whole")) == sorted(labeled)
    parts = [name for name in files_of(hub, "me/whole") if name.endswith(".parquet")]
    assert len(parts) == 12  # six parts, each with two splits
    assert [name for name in files_of(hub, "me/whole") if name not in parts] == [
        *("README.md", "failures.jsonl", "metrics.json", "recipe.yaml", "run.json")
    ]
    texts = [hub.text(f"datasets/me/whole/resolve/main/{name}") for name in files_of(hub, "me/whole") if name not in parts]
    assert not [text for text in (done.stdout, done.stderr, *texts) if hub.token in text]
    card = texts[0]
    assert "60 questions went in; 57 were labelled and 3 rejected." in card
    assert not (tmp_path / "run" / "hub_parts").exists()
    code = "import datasets; print({name: rows.num_rows for name, rows in datasets.load_dataset('me/whole').items()})"
    loaded = hub.run("python", "-c", code, HF_HOME=str(tmp_path / "home"))
    counts = {name.replace("-", "_"): len((tmp_path / "run" / f"{name}.jsonl").read_text().splitlines()) for name in ("train", "dev-small")}
    assert loaded.stdout.strip() == str(counts), loaded.stderr[-2000:]


def test_a_run_that_is_killed_again_and_again_loses_and_repeats_no_row(hub, recipe, tmp_path):
    drawn, cards = random.Random(7), []
    with serving(decompose, faults=Faults(slow_seconds=0.6)) as server:
        path = recipe(server.base_url, "me/killed", hub={"to": "me/killed", "questions_per_part": 10, "minutes": 0.002})
        for _ in range(3):
            before = len(files_of(hub, "me/killed"))
            run = subprocess.Popen(
                [sys.executable, "-m", "distill", str(path), "--resume"], cwd=PROJECT, env=hub.environment, stderr=subprocess.DEVNULL
            )
            while run.poll() is None and len(files_of(hub, "me/killed")) <= before:
                time.sleep(0.02)
            with suppress(subprocess.TimeoutExpired):
                run.wait(timeout=drawn.uniform(0, 0.5))
            run.send_signal(signal.SIGKILL)
            run.wait()
            found = pushed_ids(hub, "me/killed")
            assert len(found) == len(set(found))
            cards.append(hub.text("datasets/me/killed/resolve/main/README.md"))
        done = hub.run("refinery", "distill", str(path), "--resume")
    assert done.returncode == 0, done.stderr
    assert sorted(pushed_ids(hub, "me/killed")) == sorted(f"q{i}" for i in range(COUNT))
    assert all("labels are still being made" in card for card in cards)
    assert "labels are still being made" not in hub.text("datasets/me/killed/resolve/main/README.md")
    assert server.requests < 2 * COUNT


def test_rows_of_another_recipe_are_replaced(hub, recipe):
    with serving(decompose) as server:
        for limit in (60, 15):
            path = recipe(server.base_url, "me/again", limit=limit)
            assert hub.run("refinery", "distill", str(path), "--resume").returncode == 0
    assert sorted(pushed_ids(hub, "me/again")) == sorted(f"q{i}" for i in range(15))
    assert len([name for name in files_of(hub, "me/again") if name.endswith(".parquet")]) == 4


@pytest.mark.parametrize(
    ("values", "environment", "said"),
    [
        ({"hub": {"to": "me/refused"}}, {"HF_TOKEN": "hf_anothers"}, "me/refused: the hub refused with status 401."),
        ({"hub": {"to": "me/refused"}}, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "me/refused: the hub cannot be reached ("),
        ({"hub": {"to": "me/refused"}, "shard": "0/2"}, {}, "hub: cannot receive one shard of several."),
        ({"hub": {"to": "../refused"}}, {}, "error: ../refused: cannot be pushed to ("),
    ],
    ids=["token", "address", "shard", "name"],
)
def test_a_hub_that_refuses_stops_the_run_before_anything_is_paid(hub, recipe, values, environment, said):
    with serving(decompose) as server:
        done = hub.run("refinery", "distill", str(recipe(server.base_url, "me/refused", **values)), **environment)
        assert server.requests == 0
    assert done.returncode == 2
    assert said in done.stderr.strip().splitlines()[-1]


def test_a_hub_that_goes_away_costs_no_label(hub, recipe, tmp_path):
    with serving(decompose, faults=Faults(slow_seconds=0.05)) as server:
        path = recipe(server.base_url, "me/away")
        run = subprocess.Popen(
            [sys.executable, "-m", "distill", str(path)], cwd=PROJECT, env=hub.environment, stderr=subprocess.PIPE, text=True
        )
        while not files_of(hub, "me/away"):
            time.sleep(0.02)
        hub.refuse_commits()
        try:
            _, error = run.communicate(timeout=300)
        finally:
            hub.heal()
    assert run.returncode == 2
    assert "files are sent with the next push" in error
    assert f"`refinery push {tmp_path / 'run'} --to me/away` pushes them." in error.strip().splitlines()[-1]
    assert len((tmp_path / "run" / "train.jsonl").read_text().splitlines()) == 40
    assert hub.run("refinery", "push", str(tmp_path / "run"), "--to", "me/away").returncode == 0
