import pytest

from distill.steps.annotations import searchable_steps
from refinery.contract.records import Question, SubQuestion
from refinery.contract.sub_questions import resolved_step

STEPS = [
    SubQuestion(text="Who directed Dune?", answer="Maria Torvel", supporting=["dune"]),
    SubQuestion(text="Where was #1 born?", supporting=["torvel"]),
    SubQuestion(text="Is #2 a city?", supporting=["lyon"]),
    SubQuestion(text="Is that so?", supporting=[]),
]


def test_a_step_has_earlier_answers_for_its_references():
    assert resolved_step(STEPS, 1).text == "Where was Maria Torvel born?"


@pytest.mark.parametrize("text", ["Where was #2 born?", "Where was #3 born?", "Where was #0 born?"])
def test_a_step_that_refers_to_itself_or_onwards_cannot_be_resolved(text):
    assert resolved_step([STEPS[0], SubQuestion(text=text, answer="Lyon"), STEPS[2]], 1) is None


def test_steps_without_passages_or_without_the_answers_they_need_are_not_searched():
    texts = [step.text for step in searchable_steps(Question(id="q", text="Where?", decomposition=STEPS), "kept")]
    assert texts == ["Who directed Dune?", "Where was Maria Torvel born?"]
