"""Training rows by hub name, in RQ-RAG's layout and in ours, over a hub on loopback."""

import json
from pathlib import Path

import pytest

from refinery.contract.records import Step, Trajectory
from refinery.errors import RecordError
from refinery.runtime.files.hub_dataset import with_split
from refinery.tasks.base import load_task

SAID = "[S_Rewritten_Query]\nDune film\n[EOS][R_Evidences]\nTitle: Dune\nText: By Torvel.\n[/R_Evidences][A_Response]\nTorvel\n[EOS]"
RELEASED = {
    "id": "7",
    "dataset": "arc",
    "messages": [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "Who made Dune?"},
        {"role": "assistant", "content": SAID},
    ],
}
OURS = Trajectory(question_id="q", question="Who made Dune?", steps=[Step(action="answer", text="Torvel")])

_PUT_AND_READ = """
import io, json, sys
from pathlib import Path
import pyarrow
from huggingface_hub import HfApi
from pyarrow import parquet
from refinery.errors import RecordError
from refinery.tasks.base import load_task

api = HfApi()
for name, rows in json.loads(sys.argv[1]).items():
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    api.create_repo(name, repo_type="dataset")
    api.upload_file(path_or_fileobj=buffer.getvalue(), path_in_repo="data/train-00000-of-00001.parquet", repo_id=name, repo_type="dataset")
for name in sys.argv[2:]:
    try:
        print(json.dumps([row.model_dump(mode="json", exclude_none=True) for row in load_task("refinement").read(Path(name))]))
    except RecordError as error:
        print(error)
"""


def test_rows_are_read_by_the_name_of_their_dataset(hub, tmp_path):
    rows = {"me/released": [RELEASED], "me/ours": [OURS.model_dump(mode="json")], "me/questions": [{"id": "q", "text": "Who?"}]}
    names = ["me/released", "me/released:train", "me/ours", "me/questions"]
    done = hub.run("python", "-c", _PUT_AND_READ, json.dumps(rows), *names, HF_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    released, with_split_named, ours, wrong = done.stdout.splitlines()
    (tmp_path / "train.jsonl").write_text(json.dumps(RELEASED))
    (expected,) = load_task("refinement").read(tmp_path / "train.jsonl")
    assert [Trajectory.model_validate(row) for row in json.loads(released)] == [expected]
    assert with_split_named == released
    assert [Trajectory.model_validate(row) for row in json.loads(ours)] == [OURS]
    assert wrong.startswith("me/questions:train: row 1: field 'question_id': is missing.")


@pytest.mark.parametrize(
    ("named", "read"),
    [
        ("owner/name", "owner/name:train"),
        ("owner/name@v1", "owner/name@v1:train"),
        ("owner/name?config=main", "owner/name:train?config=main"),
        ("owner/name:validation", "owner/name:validation"),
        ("runs/labels/train.jsonl", "runs/labels/train.jsonl"),
        ("labels/train.jsonl", "labels/train.jsonl"),
    ],
)
def test_a_dataset_named_without_a_split_is_read_as_its_training_rows(named, read):
    assert with_split(Path(named)) == Path(read)


def test_a_missing_file_is_not_taken_for_a_dataset(tmp_path):
    with pytest.raises(RecordError, match="train.jsonl: cannot be read"):
        load_task("refinement").read(tmp_path / "train.jsonl")
