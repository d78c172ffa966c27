"""How many searches a stepwise trajectory needs before its answer, and what becomes of a teacher that would answer earlier."""

import json

import pytest

from distill.recipe import DistillRecipe
from distill.run import run
from refinery.contract.records import KnowledgeLabel, Passage, Question, SubQuestion, write_records
from refinery.demo.teacher.server import serving
from refinery.errors import RecipeError
from refinery.runtime.recipe import build_recipe

DUNE = Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed.")
TORVEL = Passage(id="torvel", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
STEPS = [
    SubQuestion(text="Who directed Dune?", answer="Maria Torvel", supporting=["dune"]),
    SubQuestion(text="Where was #1 born?", answer="Lyon", supporting=["torvel"]),
    SubQuestion(text="Is #2 a city?", supporting=[]),
]
QUESTION = Question(id="q", text="Where was the director of Dune born?", answers=["Lyon"], passages=[DUNE, TORVEL])
ANNOTATED = QUESTION.model_copy(update={"decomposition": STEPS})
HOPS = ["Who directed Dune?", "Where was Maria Torvel born?"]


class Knowing:
    """A teacher that knows every answer: it answers as soon as it may, and otherwise makes the next search."""

    def __init__(self, searches=HOPS):
        self.searches = list(searches)

    def __call__(self, prompt):
        action, text = ("answer", "Lyon") if "- answer:" in prompt else ("rewrite", self.searches.pop(0))
        return json.dumps({"action": action, "text": text})


@pytest.fixture
def stepwise(label, scripted_teacher):
    """The texts of a trajectory by a teacher that knows the answer."""

    def texts(question, teacher=None, **options):
        (trajectory,) = label("refinement", question, {"teacher": scripted_teacher(teacher or Knowing())}, **options)
        return [step.text for step in trajectory.steps]

    return texts


@pytest.fixture
def labels(tmp_path):
    """A file of self-knowledge labels by question id."""

    def write(**of_ids):
        rows = [KnowledgeLabel(question_id=id, question="?", label=label) for id, label in of_ids.items()]
        write_records(tmp_path / "labels.jsonl", rows)
        return [tmp_path / "labels.jsonl"]

    return write


@pytest.mark.parametrize(
    ("question", "min_searches", "searches"),
    [
        (QUESTION, 0, []),
        (QUESTION, 1, HOPS[:1]),
        (QUESTION, 2, HOPS),
        (QUESTION, "annotated", HOPS[:1]),
        (ANNOTATED, "annotated", HOPS),
    ],
)
def test_a_teacher_that_knows_the_answer_searches_as_often_as_is_needed(stepwise, question, min_searches, searches):
    assert stepwise(question, min_searches=min_searches) == [*searches, "Lyon"]


def test_the_same_search_twice_counts_once(stepwise):
    teacher = Knowing([HOPS[0], HOPS[0].upper(), HOPS[1]])
    assert stepwise(QUESTION, teacher, min_searches=2) == [HOPS[0], HOPS[0].upper(), HOPS[1], "Lyon"]


@pytest.mark.parametrize(("student", "min_searches", "searches"), [("unknow", 0, 1), ("unknow", 2, 2), ("know", 2, 0)])
def test_what_the_student_does_not_know_is_searched(stepwise, labels, student, min_searches, searches):
    assert stepwise(QUESTION, knowledge=labels(q=student), min_searches=min_searches) == [*HOPS[:searches], "Lyon"]


def test_a_question_without_a_label_of_the_students_knowledge_is_rejected(rejection, scripted_teacher, labels):
    parts = {"teacher": scripted_teacher(Knowing())}
    assert rejection("refinement", QUESTION, parts, knowledge=labels(other="know")).reason == "no_knowledge_label"


def test_more_annotated_hops_than_searches_are_allowed_are_rejected(rejection, scripted_teacher):
    many = QUESTION.model_copy(update={"decomposition": [SubQuestion(text=f"Who {number}?") for number in range(6)]})
    rejected = rejection("refinement", many, {"teacher": scripted_teacher(Knowing())}, min_searches="annotated")
    assert str(rejected) == "too_many_steps: 6 searches are needed, max_steps is 5"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_searches": 6}, "options.min_searches: 6 searches do not fit into max_steps 5. Raise max_steps."),
        ({"min_searches": -1}, "options.min_searches"),
        ({"kind": "multi_hop", "min_searches": 1}, "min_searches and knowledge are for kind stepwise"),
    ],
)
def test_options_that_cannot_be_met_are_one_line(label, scripted_teacher, options, message):
    with pytest.raises(RecipeError, match=message):
        label("refinement", QUESTION, {"teacher": scripted_teacher(Knowing())}, **options)


@pytest.fixture
def finished(tmp_path):
    """The metrics and rejections of a run over QUESTION whose endpoint replies by a script; `taught` are the prompts."""

    def finish(script, **options):
        write_records(tmp_path / "questions.jsonl", [QUESTION])
        with serving(script) as server:
            values = {
                "task": "refinement",
                "options": options,
                "questions": [tmp_path / "questions.jsonl"],
                "output_dir": tmp_path / "run",
                "teacher": {"base_url": server.base_url, "model": "scripted", "max_tries": 1},
                "retriever": {"name": "candidates"},
                "max_failure_share": 1,
            }
            metrics = run(build_recipe(values, DistillRecipe, where="recipe"), resume=(tmp_path / "run").exists())
        failures = [json.loads(line) for line in (tmp_path / "run" / "failures.jsonl").read_text().splitlines()]
        return metrics, failures

    return finish


def test_a_teacher_that_answers_all_the_same_is_corrected_once_and_then_rejected(finished):
    metrics, (failure,) = finished(lambda prompt: json.dumps({"action": "answer", "text": "Lyon"}), min_searches=1)
    assert metrics["rejected_by_reason"] == {"answered_too_early": 1}
    assert failure["detail"].startswith("answered_too_early: after 0 searches: ")
    assert metrics["teacher"]["calls"] == 2


def test_the_file_of_the_students_knowledge_is_an_input_whose_change_redoes_a_finished_run(finished, labels):
    files = labels(q="know")
    before, _ = finished(Knowing(), knowledge=files)
    labels(q="unknow")
    after, _ = finished(Knowing(), knowledge=files)
    assert before["inputs"][str(files[0])] != after["inputs"][str(files[0])]
    assert (before["guards"]["label_balance"], after["guards"]["label_balance"]) == ({"answer": 1}, {"rewrite": 1, "answer": 1})
