"""A pushed dataset: its card, as it is printed before a push and as the hub's own libraries read it, and its rows."""

import json

import pytest

from refinery.cli import main
from refinery.errors import HubError, RunDirError
from refinery.hub.push import card, check_reproduced

GUARDS = {
    "rows": 90,
    "label_balance": {"know": 60, "unknow": 30},
    "duplicate_questions": {"questions": 90, "duplicates": 9},
    "answer_in_query": {"trajectories": 0, "leaking": 0, "examples": []},
    "evaluation_overlap": {"dev.jsonl": {"questions": 90, "same": 2, "nearly_the_same": 3, "examples": ["q1"]}},
    "length_in_tokens": {"p50": 40, "p90": 80, "rows_measured": 90, "max_length": 64, "over_max_length": 18},
}
SPENT = {
    "calls": 100,
    "replies_from_store": 7,
    "retries": 1,
    "num_prompt_tokens": 1234,
    "num_completion_tokens": 567,
    "models": {"big-1-2024": 100},
    "cost_usd": None,
    "prices": None,
}
METRICS = {
    "questions": 100,
    "questions_labelled": 90,
    "questions_rejected": 10,
    "rejected_by_reason": {"refused": 10},
    "rows": 90,
    "rows_by_split": {"train": 80, "dev-small": 10},
    "teacher": SPENT,
    "guards": GUARDS,
    "prompts": {"teacher_self_knowledge": "abc123"},
}
RECIPE = {
    "task": "self_knowledge",
    "output_dir": "run",
    "licence": "CC BY-SA 4.0",
    "teacher": {"model": "big-1", "temperature": 0.5, "max_tokens": 50, "base_url": "https://me:pass-word@host:8000/v1?api-key=sk-1234"},
}


def written(folder, *, metrics=METRICS, recipe=RECIPE, **record):
    """A finished distill run as its files say it."""
    command = ["/opt/venv/bin/refinery", "distill", "recipe.yaml", "teacher.base_url=https://me:pass-word@host:8000/v1"]
    run = {"stage": "distill", "recipe": recipe, "commit": "c0ffee", "versions": {"refinery": "0.1.0"}, "command": command} | record
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_the_card_is_printed_before_a_push(tmp_path, capsys):
    assert main(["push", str(written(tmp_path)), "--to", "me/mine", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    for line in (
        "# self_knowledge",
        "100 questions went in; 90 were labelled and 10 rejected.",
        "| dev-small | 10 |",
        "| know | 60 |",
        "| refused | 10 |",
        "- Duplicate questions: 9 of 90 (10.0%).",
        "- Questions that are in `dev.jsonl`: 2 of 90 (2.2%); nearly the same as one there: 3 of 90 (3.3%).",
        "- Tokens of a row: p50 40, p90 80; longer than 64: 18 of 90 (20.0%).",
        "- Model: `big-1`; answered as `big-1-2024`.",
        "- Sampling: temperature 0.5, at most 50 tokens.",
        "- Tokens: 1234 in prompts, 567 in replies. Cost: unknown.",
        "| teacher_self_knowledge | abc123 |",
        "License of the questions and passages: CC BY-SA 4.0.",
    ):
        assert f"{line}\n" in printed
    assert not (tmp_path / "README.md").exists()


@pytest.mark.parametrize("name", ["onlyname", "a b/c", "../mine", "me/..", "me/a/b", "me/mine\n"])
def test_a_name_that_no_hub_takes_is_refused_before_anything_is_shown(tmp_path, capsys, name):
    assert main(["push", str(written(tmp_path)), "--to", name, "--dry-run"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"error: --to {name!r}: is not of the form OWNER/NAME in letters, digits, '-', '_' and single '.'.\n"


def test_a_known_cost_is_stated(tmp_path):
    assert "Cost: $1.25." in card(written(tmp_path, metrics=METRICS | {"teacher": SPENT | {"cost_usd": 1.25}}), "me/mine")


def test_no_secret_of_an_address_is_on_the_card(tmp_path):
    printed = card(written(tmp_path), "me/mine")
    assert "refinery distill recipe.yaml teacher.base_url=https://host:8000/v1\n" in printed
    assert '"base_url": "https://host:8000/v1"' in printed
    assert not any(secret in printed for secret in ("pass-word", "sk-1234", "//me"))


def test_the_commands_of_a_merged_run_are_its_shards_and_its_own(tmp_path):
    shards = [{"command": ["/x/distill/__main__.py", "r.yaml", f"shard={number}/2"]} for number in range(2)]
    printed = card(written(tmp_path, shards=shards, command=["/bin/refinery", "distill", "merge", "all", "my run"]), "me/mine")
    commands = ["refinery distill r.yaml shard=0/2", "refinery distill r.yaml shard=1/2", "refinery distill merge all 'my run'"]
    assert "\n".join(["## Commands", "```", *commands, "```"]) in printed


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("CC BY-SA 4.0", {"license": "cc-by-sa-4.0"}),
        ("Apache-2.0", {"license": "apache-2.0"}),
        ("My own: terms", {"license": "other", "license_name": "my-own-terms"}),
        (None, {"license": "unknown"}),
    ],
)
def test_the_hub_reads_licence_and_splits(tmp_path, licence, expected):
    from huggingface_hub import DatasetCard

    data = DatasetCard(card(written(tmp_path, recipe=RECIPE | {"licence": licence}), "me/mine")).data.to_dict()
    assert {key: data[key] for key in expected} == expected
    files = [{"split": "train", "path": "train.parquet"}, {"split": "dev_small", "path": "dev-small.parquet"}]
    assert data["configs"] == [{"config_name": "default", "data_files": files}]


def test_datasets_loads_the_folder_of_a_run_by_its_card(tmp_path):
    import datasets

    (written(tmp_path) / "README.md").write_text(card(tmp_path, "me/mine"))
    write_rows(tmp_path, {"train": ["train"], "dev-small": ["dev-small"]})
    (tmp_path / "failures.jsonl").write_text('{"question_id": "q"}\n')
    loaded = datasets.load_dataset(str(tmp_path), cache_dir=str(tmp_path / "cache"))
    assert {split: rows["question"][0] for split, rows in loaded.items()} == {"train": "train", "dev_small": "dev-small"}


def write_rows(folder, questions):
    import pyarrow
    from pyarrow import parquet

    for split, texts in questions.items():
        parquet.write_table(pyarrow.table({"question": texts, "label": ["know"] * len(texts)}), folder / f"{split}.parquet")
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"question": text, "label": "know"}) + "\n" for text in texts))


@pytest.fixture(scope="module")
def pushed(hub, tmp_path_factory):
    """A distill run of five rows, pushed; and what the command printed."""
    folder = written(tmp_path_factory.mktemp("labels"), metrics=METRICS | {"rows_by_split": {"train": 3, "dev-small": 2}})
    write_rows(folder, {"train": ["a", "b", "c"], "dev-small": ["d", "e"]})
    (folder / "effects.sqlite").write_text("the replies stay here")
    return folder, hub.run("refinery", "push", str(folder), "--to", "me/labels")


def test_a_pushed_dataset_is_private_and_read_back_before_the_push_is_done(hub, pushed):
    assert pushed[1].returncode == 0, pushed[1].stderr
    assert pushed[1].stdout.strip() == f"{hub.address}/datasets/me/labels"
    assert "5 rows read back from the downloaded copy" in pushed[1].stderr
    held = hub.repositories()["datasets/me/labels"]
    files = ["README.md", "dev-small.jsonl", "dev-small.parquet", "metrics.json", "recipe.yaml", "run.json", "train.jsonl", "train.parquet"]
    assert held == {"private": True, "branches": {"main": files}}


def test_a_stranger_loads_its_rows(hub, pushed, tmp_path):
    code = "import datasets; print({split: rows['question'] for split, rows in datasets.load_dataset('me/labels').items()})"
    done = hub.run("python", "-c", code.replace("rows['question']", "list(rows['question'])"), HF_HOME=str(tmp_path))
    assert done.stdout.strip() == "{'train': ['a', 'b', 'c'], 'dev_small': ['d', 'e']}", done.stderr[-2000:]


def test_no_secret_is_pushed(hub, pushed):
    texts = [hub.text(f"datasets/me/labels/resolve/main/{name}") for name in ("README.md", "run.json", "recipe.yaml")]
    texts += [
        pushed[1].stdout,
        pushed[1].stderr,
        *(path.read_text(errors="ignore") for path in pushed[0].iterdir() if path.name != "run.json"),
    ]
    assert not [text for text in texts if any(secret in text for secret in ("pass-word", "sk-1234", hub.token))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"HF_TOKEN": "hf_anothers"}, "me/labels: the hub refused with status 401. Run `hf auth login`"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "me/labels: the hub cannot be reached ("),
    ],
    ids=["token", "address"],
)
def test_a_push_that_the_hub_refuses_is_one_line(hub, pushed, change, said):
    done = hub.run("refinery", "push", str(pushed[0]), "--to", "me/labels", **change)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr.strip().splitlines()[-1]
    assert "hf_anothers" not in done.stderr


def test_a_copy_that_is_not_what_was_pushed_is_reported(hub, pushed):
    hub.corrupt("train.parquet")
    try:
        done = hub.run("refinery", "push", str(pushed[0]), "--to", "me/labels")
    finally:
        hub.heal()
    assert done.returncode == 2
    assert "me/labels: 'train.parquet' is not what was pushed" in done.stderr.strip().splitlines()[-1]


def test_nothing_private_goes_to_a_public_repository(hub, pushed):
    public = [hub.run("refinery", "push", str(pushed[0]), "--to", "me/open", "--public")]
    public.append(hub.run("refinery", "push", str(pushed[0]), "--to", "me/open"))
    assert [done.returncode for done in public] == [0, 2]
    assert "is public already. Pass --public to push there" in public[1].stderr
    assert not hub.repositories()["datasets/me/open"]["private"]


def test_an_output_that_differs_is_named():
    with pytest.raises(HubError, match=r"does not reproduce the run: after 'Who directed Dune\?' it gives 'Mario', the run 'Maria'\."):
        check_reproduced("me/mine", ["Who?", "Who directed Dune?"], ["know", "Maria"], ["know", "Mario"])


def test_a_run_without_metrics_is_not_pushed(tmp_path):
    (written(tmp_path) / "metrics.json").unlink()
    with pytest.raises(RunDirError, match="is unfinished. Resume it with --resume."):
        card(tmp_path, "me/mine")
