"""Every dataset in the layout of its copy on the hub, loaded by the copy's name, and in its release: equal questions and gold answers."""

import json
from pathlib import Path

import pytest
from helpers.hub_copies import LAYOUTS
from helpers.hub_layouts import Layout

from refinery.questions.base import READERS, read_questions
from refinery.runtime.recipes import plugins

SHARED = Path(__file__).parents[4] / "shared" / "data"

# Puts rows on the hub as Parquet, with a configuration where the copy has one, and reads them by the copy's name.
_ROUND_TRIP = """
import io, json, sys
from pathlib import Path
import pyarrow
from huggingface_hub import HfApi
from pyarrow import parquet
from refinery.questions.base import read_questions

api, places = HfApi(), {}
for name, repository, config, rows in json.loads(Path(sys.argv[1]).read_text()):
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
    api.create_repo(repository, repo_type="dataset", exist_ok=True)
    path = f"{config or 'data'}/validation-00000-of-00001.parquet"
    card = f"---\\nconfigs:\\n- config_name: {config or 'default'}\\n  data_files:\\n  - split: validation\\n    path: {path}\\n---\\n"
    for content, place in ((buffer.getvalue(), path), (card.encode(), "README.md")):
        api.upload_file(path_or_fileobj=content, path_in_repo=place, repo_id=repository, repo_type="dataset")
    address = f"{repository}:validation" + (f"?config={config}" if config else "")
    places[name] = [question.model_dump(mode="json") for question in read_questions([Path(address)])]
Path(sys.argv[2]).write_text(json.dumps(places))
"""


def _loaded(hub, folder, rows_of):
    """The questions of each layout's rows, loaded from the hub by name."""
    given = [[name, layout.repository, layout.config, rows_of[name]] for name, layout in LAYOUTS.items() if name in rows_of]
    (folder / "given.json").write_text(json.dumps(given))
    done = hub.run("python", "-c", _ROUND_TRIP, str(folder / "given.json"), str(folder / "read.json"), HF_HOME=str(folder / "home"))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "read.json").read_text())


def _hub_rows(layout: Layout, rows):
    held = [layout.to_hub(row) for row in rows]
    return [row for rows in held for row in (rows if isinstance(rows, list) else [rows])]


def _original(layout: Layout, path: Path):
    return [question.model_dump(mode="json") for question in read_questions([path], reader=layout.reader)]


def _compared(layout: Layout, questions):
    left_out = {"split", *layout.lacks, *(() if layout.has_ids else ("id",))}
    return [{name: value for name, value in question.items() if name not in left_out} for question in questions]


@pytest.fixture(scope="module")
def tiny(hub, tmp_path_factory):
    return _loaded(hub, tmp_path_factory.mktemp("tiny"), {name: _hub_rows(layout, layout.rows) for name, layout in LAYOUTS.items()})


@pytest.fixture(scope="module")
def real(hub, tmp_path_factory):
    files = {name: layout for name, layout in LAYOUTS.items() if layout.file and (SHARED / layout.file).exists()}
    rows = {name: _hub_rows(layout, layout.rows_of(SHARED / layout.file)) for name, layout in files.items()}
    return _loaded(hub, tmp_path_factory.mktemp("real"), rows) if rows else {}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_gives_the_questions_of_the_release(name, tiny, tmp_path):
    layout = LAYOUTS[name]
    folder = tmp_path / (layout.config or "data")  # FlashRAG's dataset is the name of its folder
    folder.mkdir()
    path = layout.write(layout.rows, folder)
    assert _compared(layout, tiny[name]) == _compared(layout, _original(layout, path))


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.file])
def test_a_copy_of_real_rows_gives_the_questions_of_the_release(name, real):
    layout = LAYOUTS[name]
    if name not in real:
        pytest.skip(f"{SHARED / layout.file} is not here")
    found, expected = _compared(layout, real[name]), _compared(layout, _original(layout, SHARED / layout.file))
    assert len(found) == len(expected) > 1
    assert [a for a, b in zip(found, expected, strict=True) if a != b] == []


def test_every_reader_that_knows_a_copy_is_tried():
    knowing = {name for name in READERS.names() if plugins.find_installed(READERS, name).repositories}
    assert knowing == {layout.reader for layout in LAYOUTS.values()}


def test_the_readers_that_are_not_tried_on_real_rows_are_those_whose_releases_are_not_at_hand():
    knowing = {layout.reader for layout in LAYOUTS.values()}
    tried = {layout.reader for layout in LAYOUTS.values() if layout.file}
    assert knowing - tried == {"lima", "rq_rag", "qrecc", "openorca", "gpt4_alpaca", "wizardlm"}


_COPY = "drt/kqa_pro_script"
_PUT = """
import io
import pyarrow
from huggingface_hub import HfApi
from pyarrow import parquet

api, name = HfApi(), "drt/kqa_pro_script"

def put(content, place):
    return api.upload_file(path_or_fileobj=content, path_in_repo=place, repo_id=name, repo_type="dataset").oid

def put_rows(question):
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([{"question": question, "answer": "2"}]), buffer)
    return put(buffer.getvalue(), "kqa/validation/0000.parquet")

api.create_repo(name, repo_type="dataset")
print(put_rows("First?"))
put_rows("Second?")
api.create_branch(name, branch="refs/convert/parquet", repo_type="dataset")
put(b"import datasets", "kqa_pro_script.py")
"""
_READ = """
import sys
from pathlib import Path
from refinery.errors import RecordError
from refinery.questions.base import read_questions
from refinery.runtime.files.hub_dataset import source_fingerprint
for address in sys.argv[1:]:
    try:
        print(read_questions([Path(address)], reader="kqapro")[0].text, source_fingerprint(Path(address)) or "")
    except RecordError as error:
        print(error)
"""


def test_a_pinned_copy_is_read_also_without_the_hub_and_of_one_with_a_script_the_hubs_conversion(hub, tmp_path):
    commit = hub.run("python", "-c", _PUT, HF_HOME=str(tmp_path)).stdout.split()[-1]
    pinned, converted = f"{_COPY}@{commit}:validation", f"{_COPY}:validation?config=kqa"  # the loading script is not run
    online = hub.run("python", "-c", _READ, pinned, converted, "drt/none:test", HF_HOME=str(tmp_path)).stdout.splitlines()
    assert online[0] == f"First? {commit}"  # which a run records
    assert online[1].startswith("Second? ")
    assert online[2].startswith("drt/none:test?reader=kqapro: cannot be loaded from the hub (Dataset 'drt/none' doesn't exist")
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    again = hub.run("python", "-c", _READ, pinned, f"{_COPY}@{'0' * 40}:validation", **offline).stdout.splitlines()
    assert again[0] == f"First? {commit}"
    assert "the hub cannot be reached, and its cache has only revision" in again[1]
