import io

from rich.console import Console

from infer.evaluate import evaluate
from infer.report import results_table
from infer.scores import score
from refinery.records import Question, SubQuestion


def printed(*questions: Question) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(results_table(evaluate(score("rag", questions, [None] * len(questions)), [], seconds=1.0), title="a run"))
    return console.file.getvalue()


def test_the_table_shows_the_metrics_of_the_dataset_by_hops():
    table = printed(Question(id="a", text="Who?", dataset="musique", answers=["Lyon"], decomposition=[SubQuestion(text="Who?")] * 2))
    assert "em.squad / f1.musique" in table
    assert "0.0 / 0.0" in table
    assert "multi_hop" in table


def test_choices_are_told_by_their_accuracy():
    assert "accuracy.choice / match.selfrag" in printed(
        Question(id="a", text="Which?", dataset="arc", answers=["B"], choices=["Oslo", "Lyon"])
    )
