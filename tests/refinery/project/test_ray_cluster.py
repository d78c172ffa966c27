"""A real Ray cluster of two workers on this machine, of which one is lost midway: labels and answers are those of one process.

Needs the extra `ray`. Every request to the teacher is counted by its prompt.
"""

import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing

import psutil
import pytest
import yaml

from distill.__main__ import main as distill
from infer.__main__ import main as infer
from refinery.contract.records import RelevanceLabel, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.replies import DemoTeacher
from refinery.demo.teacher.server import Faults, serving
from refinery.demo.world.data import demo_questions
from refinery.demo.world.entities import demo_worlds
from refinery.project.on_ray import run_on_ray
from refinery.project.process import StepFailed

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
    process = next(each for each in psutil.process_iter(["cmdline"]) if f"shard={shard}" in (each.info["cmdline"] or []))
    return process.parent()


def kill_midway(store, lost, killed):
    """SIGKILL to the worker of shard 0, or to the node that it is on, once it has some replies and others are under way."""
    while replies_in(store) < 8:
        time.sleep(0.02)
    worker = worker_of("0/2")
    killed.append(worker if lost == "worker" else worker.parent())
    killed[0].send_signal(signal.SIGKILL)


def content(stage, folder):
    """What a run made, by question."""
    if stage == "infer":
        return {prediction.question_id: prediction for prediction in read_records(folder / PREDICTIONS_FILE, Prediction)}
    rows = read_records(folder / "train.jsonl", RelevanceLabel)
    return {(row.question_id, row.passage.id): row.model_copy(update={"provenance": None}) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "lost"), [("distill", "node"), ("infer", "worker")])
def test_a_lost_worker_loses_nothing_and_nothing_is_paid_twice(stage, lost, cluster, write_recipe, teacher, tmp_path):
    recipe, killed = write_recipe(stage), []
    killer = threading.Thread(target=kill_midway, args=(tmp_path / "all.shards" / "0" / "effects.sqlite", lost, killed), daemon=True)
    killer.start()
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
