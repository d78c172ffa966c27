"""Questions split over processes, and what each leaves on disk."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infer.run_record.ledger import AnswerLedger, LedgerAnswers, LedgerRow, Processes, delete_ledgers, ledgers_of
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Cost, Prediction
from refinery.errors import RecordError
from refinery.prompts.render import render_prompt
from refinery.runtime.run.run_dir import RunDir

PROJECT = Path(__file__).parents[3]
COST = Cost(calls=1, retrievals=0, prefill_tokens=5, decode_tokens=2)


def answered(number: int) -> Prediction:
    return Prediction(question_id=f"q{number}", question="é?", answer=str(number), trace=[], cost=COST)


@pytest.fixture
def output(tmp_path) -> RunDir:
    return RunDir(tmp_path)


def ledgers(output: RunDir) -> LedgerAnswers:
    return LedgerAnswers(ledgers_of(output))


def rows(output: RunDir) -> list[LedgerRow]:
    return [row for path in ledgers_of(output) for row in read_records(path, LedgerRow)]


def asked(number: int) -> Question:
    return Question(id=f"q{number}", text="é?")


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("questions", [0, 1, 6, 20])
def test_every_question_is_in_one_share_and_shares_are_even(count, questions):
    shares = [list(Processes(rank, count).share(range(questions))) for rank in range(count)]
    assert sorted(number for share in shares for number in share) == list(range(questions))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_waits_for_nobody():
    processes = Processes.launched()
    processes.wait()
    processes.part()
    assert processes.is_main


def test_what_all_processes_wrote_is_read_and_then_deleted(output):
    for rank in range(3):
        with AnswerLedger(output, rank, attempt=1) as ledger:
            ledger.write(answered(rank))
    with ledgers(output) as found:
        assert [found.last_outcome(asked(number)) for number in range(3)] == [answered(0), answered(1), answered(2)]
    delete_ledgers(output)
    assert not ledgers_of(output)


@pytest.mark.parametrize("torn", [b"{", '{"attempt": 2, "prediction": {"answer": "é'.encode()[:-1], b"\xff\xfe"])
def test_a_line_cut_short_is_neither_read_nor_continued(output, torn):
    with AnswerLedger(output, 0, attempt=1) as ledger:
        ledger.write(answered(0))
    path = next(output.path.iterdir())
    path.write_bytes(path.read_bytes() + torn)
    assert [ledgers(output).has_answer(asked(number)) for number in range(2)] == [True, False]
    with AnswerLedger(output, 0, attempt=2) as ledger:
        ledger.write(answered(1))
    assert [(row.prediction.question_id, row.attempt) for row in rows(output)] == [("q0", 1), ("q1", 2)]


def test_a_line_that_is_no_row_says_where_it_is(output):
    (output / "predictions.jsonl.ledger.4").write_text('{"attempt": 1}\n')
    with pytest.raises(RecordError, match=r"ledger\.4:1: "):
        ledgers(output)


def test_the_last_attempt_of_a_question_counts_whichever_process_made_it(output):
    failed = answered(0).model_copy(update={"failed": "refused: no"})
    for rank, attempt, outcome in [(1, 1, failed), (0, 2, answered(0)), (1, 3, failed)]:
        with AnswerLedger(output, rank, attempt=attempt) as ledger:
            ledger.write(outcome)
    with ledgers(output) as found:
        assert (found.last_outcome(asked(0)), found.has_answer(asked(0)), found.num_answered) == (failed, True, 1)


def test_the_time_of_a_run_is_that_of_its_slowest_process_in_each_attempt(output):
    for rank, attempt, seconds in [(0, 1, 2.0), (0, 1, 3.0), (1, 1, 5.0), (0, 2, 4.0), (1, 2, 1.0)]:
        row = {"attempt": attempt, "seconds": seconds, "prompts": {f"by {rank}": "hash"}, "prediction": answered(0).model_dump(mode="json")}
        with (output / f"predictions.jsonl.ledger.{rank}").open("a") as file:
            file.write(json.dumps(row) + "\n")
    found, nothing = ledgers(output), LedgerAnswers([])
    assert (found.attempts, found.wall_seconds) == (2, 9.0)
    assert found.prompts == {"by 0": "hash", "by 1": "hash"}
    assert (nothing.attempts, nothing.wall_seconds) == (0, 0)


def test_a_row_says_which_prompts_were_used_so_far(output):
    render_prompt("answer_direct", question="Who?")
    with AnswerLedger(output, 0, attempt=1) as ledger:
        ledger.write(answered(0))
    assert "answer_direct" in ledgers(output).prompts


@pytest.mark.slow
def test_accelerate_launch_splits_the_questions_and_writes_what_one_process_writes(tmp_path, tiny_bases):
    from infer.__main__ import main

    questions = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["Maria"], split="test") for i in range(9)]
    write_records(tmp_path / "questions.jsonl", questions)
    write_records(tmp_path / "passages.jsonl", [Passage(id=str(i), title=f"film {i}", text="a film") for i in range(9)])
    values = {
        "decoder": "rag",
        "questions": [str(tmp_path / "questions.jsonl")],
        "output_dir": str(tmp_path / "several"),
        "llm": {"base": str(tiny_bases["tied"])},
        "retriever": {"passages": str(tmp_path / "passages.jsonl")},
        "max_new_tokens": 4,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    command = ["accelerate.commands.launch", "--config_file", "accelerate_configs/ddp_cpu.yaml", "--main_process_port", "0", "-m", "infer"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    launched = subprocess.run(
        [sys.executable, "-m", *command, str(tmp_path / "recipe.yaml")], cwd=PROJECT, env=environment, capture_output=True, text=True
    )
    assert launched.returncode == 0, launched.stderr
    assert launched.stdout.count("9 questions") == 1  # the main process reports, once
    assert main([str(tmp_path / "recipe.yaml"), f"output_dir={tmp_path / 'one'}"]) == 0
    several, one = (read_records(tmp_path / place / PREDICTIONS_FILE, Prediction) for place in ("several", "one"))
    assert [(p.question_id, p.answer) for p in several] == [(p.question_id, p.answer) for p in one]
    split, whole = (json.loads((tmp_path / place / "metrics.json").read_text()) for place in ("several", "one"))
    assert split["results"]["rag"]["all"] == whole["results"]["rag"]["all"]
    assert split["cost"]["calls"] == whole["cost"]["calls"] == 9
    assert not list((tmp_path / "several").glob("*.ledger*"))


FILLS_ITS_DISK = """
import resource, sys
from pathlib import Path
from infer.run_record.ledger import AnswerLedger
from refinery.contract.trace import Cost, Prediction
from refinery.errors import RunDirError
from refinery.runtime.run.run_dir import RunDir

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
cost = Cost(calls=1, retrievals=0, prefill_tokens=1, decode_tokens=1)
try:
    with AnswerLedger(RunDir(Path(sys.argv[1])), 0, attempt=1) as ledger:
        while True:
            ledger.write(Prediction(question_id="q", question="Who?", answer="A", trace=[], cost=cost))
except RunDirError as error:
    print(error)
"""


def test_a_ledger_on_a_full_disk_is_one_line(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    done = subprocess.run([sys.executable, "-c", FILLS_ITS_DISK, tmp_path], capture_output=True, text=True, cwd=PROJECT)
    assert done.stdout == f"{tmp_path}/predictions.jsonl.ledger.0: cannot be written (File too large). Free some space and pass --resume.\n"
