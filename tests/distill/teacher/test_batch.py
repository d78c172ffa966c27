"""The Batch API's transport against a mock of it, with the faults that users of the real one report."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import aiohttp
import pytest

from benchmarks.distill.endpoint import Settings
from benchmarks.distill.run import endpoint, stats
from distill.__main__ import main

PROJECT = Path(__file__).parents[3]
QUICK = {"poll_seconds": 0.05, "quiet_seconds": 0.2}


def test_batched_rows_are_the_rows_of_a_live_run(mock_recipe, tmp_path, read_metrics):
    with endpoint(Settings(latency_seconds=0.1)) as url:
        path = str(mock_recipe(url, batch=QUICK))
        assert main([path, "transport=batch"]) == 0
        assert (stats(url)["batches"], stats(url)["requests"]) == (1, 40)
        assert main([path, f"output_dir={tmp_path}/live", f"store={tmp_path}/run/effects.sqlite"]) == 0
        assert stats(url)["requests"] == 40  # one store for both transports
    labels = [[json.loads(line)["sub_questions"] for line in (tmp_path / run / "train.jsonl").open()] for run in ("run", "live")]
    assert labels[0] == labels[1]
    assert read_metrics()["questions_labelled"] == 40


def test_a_wave_is_split_by_the_limits_of_a_file(mock_recipe, tmp_path):
    with endpoint(Settings(latency_seconds=0.1)) as url:
        assert main([str(mock_recipe(url, batch=QUICK | {"max_requests": 15})), "transport=batch"]) == 0
        assert stats(url)["batches"] == 3
    with endpoint(Settings(latency_seconds=0.1)) as url:
        assert main([str(mock_recipe(url, batch=QUICK | {"max_bytes": 20_000})), "transport=batch", f"output_dir={tmp_path}/again"]) == 0
        assert stats(url)["batches"] > 1


@pytest.mark.parametrize("stragglers", ["batch", "live"])
def test_lines_that_a_job_left_out_are_asked_again(mock_recipe, read_metrics, stragglers):
    with endpoint(Settings(latency_seconds=0.1, batch_omits_every=7)) as url:
        assert main([str(mock_recipe(url, batch=QUICK | {"stragglers": stragglers})), "transport=batch"]) == 0
        assert stats(url)["batches"] == (2 if stragglers == "batch" else 1)
        assert stats(url)["answered"] == 40
    assert read_metrics()["questions_labelled"] == 40


def test_a_job_is_sent_again_without_a_parameter_that_the_model_refuses(mock_recipe, read_metrics):
    with endpoint(Settings(latency_seconds=0.1, refuses="temperature")) as url:
        assert main([str(mock_recipe(url, batch=QUICK)), "transport=batch"]) == 0
        assert (stats(url)["batches"], stats(url)["answered"]) == (2, 40)
    assert read_metrics()["questions_labelled"] == 40


def test_a_job_whose_lines_all_failed_ends_the_run_if_a_tiny_request_fails_too(mock_recipe, capsys):
    with endpoint(Settings(latency_seconds=0.1, refused_share=1.0)) as url:
        assert main([str(mock_recipe(url, batch=QUICK, max_failure_share=1)), "transport=batch"]) == 2
        assert stats(url)["requests"] == 40 + 2
    assert "cannot be used: it refuses every request in the same way: status 400: content filter." in capsys.readouterr().err


def test_lines_that_a_filter_refused_reject_their_rows(mock_recipe, read_metrics):
    with endpoint(Settings(latency_seconds=0.1, refused_share=0.5)) as url:
        assert main([str(mock_recipe(url, batch=QUICK, max_failure_share=1)), "transport=batch"]) == 0
        assert stats(url)["requests"] == 40 + 1  # one tiny request for all lines of a job
    assert read_metrics()["rejected_by_reason"].keys() == {"refused"}


def test_a_job_that_the_queue_had_no_room_for_is_sent_again(mock_recipe, read_metrics):
    with endpoint(Settings(latency_seconds=0.1, batch_fails_with="token_limit_exceeded")) as url:
        assert main([str(mock_recipe(url, batch=QUICK)), "transport=batch"]) == 0
        assert (stats(url)["batches"], stats(url)["answered"]) == (2, 40)
    assert read_metrics()["questions_labelled"] == 40


def test_a_job_that_fails_for_another_reason_ends_the_run(mock_recipe, capsys):
    with endpoint(Settings(latency_seconds=0.1, batch_fails_with="invalid_file")) as url:
        assert main([str(mock_recipe(url, batch=QUICK)), "transport=batch"]) == 2
    assert "job batch_1 failed: Enqueued token limit reached" in capsys.readouterr().err


def jobs_kept(store: Path) -> int:
    """How many jobs the run would find again."""
    if not store.exists():
        return 0
    with closing(sqlite3.connect(store)) as database, suppress(sqlite3.OperationalError):  # the tables are not there yet
        return database.execute("SELECT count(*) FROM batches").fetchone()[0]
    return 0


def test_a_run_that_went_away_collects_its_jobs_when_it_comes_back(mock_recipe, tmp_path, read_metrics):
    with endpoint(Settings(latency_seconds=3.0)) as url:
        price = {"prompt": 0, "completion": 1000}  # 20 tokens a reply
        path = mock_recipe(url, batch=QUICK, teacher={"price": price}, max_cost_usd=20)
        process = subprocess.Popen([sys.executable, "-m", "distill", str(path), "transport=batch"], cwd=PROJECT, stderr=subprocess.DEVNULL)
        while not jobs_kept(tmp_path / "run" / "effects.sqlite"):
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert main([str(path), "transport=batch", "--resume"]) == 0
        assert (stats(url)["batches"], stats(url)["requests"]) == (1, 40)
    assert read_metrics()["questions_labelled"] == 40
    assert read_metrics()["teacher"]["cost_usd"] == 40 * 0.02 / 2  # each reply once, whichever attempt has sent it


@pytest.mark.parametrize("jobs_after", [0, 150])
def test_a_job_is_found_again_when_the_run_was_killed_before_it_knew_the_jobs_id(mock_recipe, tmp_path, read_metrics, jobs_after):
    with endpoint(Settings(latency_seconds=0.1, batch_create_seconds=2.0)) as url:
        path = mock_recipe(url, batch=QUICK)
        process = subprocess.Popen([sys.executable, "-m", "distill", str(path), "transport=batch"], cwd=PROJECT, stderr=subprocess.DEVNULL)
        while not stats(url)["batches"]:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        asyncio.run(create_jobs(url, jobs_after))
        assert main([str(path), "transport=batch", "--resume"]) == 0
        assert (stats(url)["batches"], stats(url)["requests"]) == (1 + jobs_after, 40)
    assert read_metrics()["questions_labelled"] == 40
    assert jobs_kept(tmp_path / "run" / "effects.sqlite") == 0


async def create_jobs(url: str, count: int) -> None:
    """Jobs of someone else, one of whom names them too."""
    job = {"endpoint": "/v1/chat/completions", "input_file_id": "file-0", "metadata": {"named": "mine"}}
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(session.post(f"{url}/v1/batches", json=job) for _ in range(count)))


def test_requests_are_sent_again_when_the_run_was_killed_before_their_job_was_created(mock_recipe, tmp_path, read_metrics):
    with endpoint(Settings(latency_seconds=0.1)) as url:
        path = str(mock_recipe(url, batch=QUICK))
        assert main([path, "transport=batch", "limit=1"]) == 0
        keys = unsent_keys(tmp_path / "run" / "effects.sqlite")
        assert main([path, "transport=batch", "--resume"]) == 0
        assert stats(url)["batches"] == 2
    assert len(keys) == 1
    assert read_metrics()["questions_labelled"] == 40


def unsent_keys(store: Path) -> list[str]:
    """Make a finished run look as if it had been killed before it created its job. Returns the requests of this job."""
    with closing(sqlite3.connect(store)) as database, database:
        keys = [key.hex() for (key,) in database.execute("SELECT key FROM effects")]
        database.execute("DELETE FROM effects")
        database.execute("INSERT INTO batches VALUES ('rag-refinery-of-a-test', ?)", (json.dumps(keys),))
    return keys


@pytest.mark.parametrize("words", ["response_format is not supported", "Structured output is not enabled"])
def test_a_job_of_a_server_without_schemas_is_sent_again_with_the_schema_in_the_prompts(mock_recipe, read_metrics, words):
    with endpoint(Settings(latency_seconds=0.1, takes_schemas=False, no_schema_words=words)) as url:
        assert main([str(mock_recipe(url, batch=QUICK, teacher={"max_tries": 1})), "transport=batch"]) == 0
        assert (stats(url)["batches"], stats(url)["answered"]) == (2, 40)
    assert read_metrics()["questions_labelled"] == 40


def test_odd_lines_of_a_result_file_end_no_run(mock_recipe, read_metrics):
    odd = ("not JSON", "[]", '{"custom_id": "of another job", "response": {"status_code": 200, "body": {}}}', '{"custom_id": 7}')
    with endpoint(Settings(latency_seconds=0.1, batch_adds=odd)) as url:
        assert main([str(mock_recipe(url, batch=QUICK)), "transport=batch"]) == 0
    assert read_metrics()["questions_labelled"] == 40
