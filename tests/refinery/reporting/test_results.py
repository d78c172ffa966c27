import io

from rich.console import Console

from infer.evaluation.evaluate import evaluate
from infer.evaluation.scores import score
from refinery.contract.records import Question, SubQuestion
from refinery.reporting.results import results_table


def printed(*questions: Question, width: int = 200) -> str:
    missing = [None] * len(questions)
    console = Console(file=io.StringIO(), width=width)
    console.print(results_table(evaluate(score("rag", questions, missing), missing, seconds=1.0), title="a run"))
    return console.file.getvalue()


def test_the_table_shows_the_metrics_of_the_dataset_by_hops():
    table = printed(Question(id="a", text="Who?", dataset="musique", answers=["Lyon"], decomposition=[SubQuestion(text="Who?")] * 2))
    assert all(name in table for name in ("multi_hop", "em.squad", "f1.musique"))
    assert table.count("0.0") >= 4


def test_choices_are_told_by_their_accuracy():
    table = printed(Question(id="a", text="Which?", dataset="arc", answers=["B"], choices=["Oslo", "Lyon"]))
    assert "accuracy.choice" in table
    assert "match.selfrag" in table


def test_metrics_keep_their_names_in_a_narrow_terminal():
    question = Question(id="a", text="Who?", dataset="lab", answers=["Lyon"], decomposition=[SubQuestion(text="Who?")] * 2)
    table = printed(question, question.model_copy(update={"id": "b", "decomposition": [SubQuestion(text="Who?")]}), width=80)
    assert all(name in table for name in ("single_hop", "multi_hop", "em.squad", "seconds"))


def test_a_metric_that_applies_to_some_questions_says_to_how_many():
    table = printed(
        Question(id="a", text="Which?", dataset="arc", answers=["B"], choices=["Oslo", "Lyon"]),
        Question(id="b", text="Who?", dataset="hotpotqa", answers=["Lyon"]),
    )
    assert "accuracy.choice" in table
    assert table.count("0.0 on 1") == 2  # accuracy.choice and accuracy.choice.rq_rag; the others apply to both
