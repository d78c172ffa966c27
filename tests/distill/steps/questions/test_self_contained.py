import json
from pathlib import Path

import pytest

from distill.steps.questions.self_contained import reference_fault
from refinery.questions.base import read_questions

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.parametrize(
    "question",
    [
        "When was it built?",
        "In which city was it built?",
        "Who directed it?",
        "Where was he born?",
        "What is its capital?",
        "Name its capital.",
        "In what year did her career begin?",
        "What was significant about his childhood?",
        "When was she inducted into the Hall of Fame?",
        "How many people live there?",
        "Who made this film?",
        "What year was this?",
        "How did these events end?",
        "Who directed the film?",
        "What is the release date of the film?",
        "When did the company go public?",
        "In which city was the building opened?",
        "The film was directed by whom?",
    ],
)
def test_a_question_about_something_that_it_does_not_name_is_found(question):
    assert (reference_fault(question) or ("",))[0] == "question_needs_context"


@pytest.mark.parametrize(
    "question",
    [
        "According to the text, who directed Dune?",
        "According to the author, why did Rome fall?",
        "Who is named in the paragraph?",
        "What does the author say about Paris?",
        "Which rivers are listed in the table above?",
        "Which of the following cities is in France?",
        "What is the main idea of the passage?",
        "What is the title of the document?",
        "Who is mentioned here?",
        "What does this article say about Dune?",
    ],
)
def test_a_question_about_its_text_is_found(question):
    assert (reference_fault(question) or ("",))[0] == "question_names_its_passage"


@pytest.mark.parametrize(
    "question",
    [
        "Who directed Dune?",
        "When was the bridge over the Rhine opened?",
        "Which film about Dune made its director famous?",
        "Who lost his leg in the battle?",
        "Which actor died while he was filming Dune?",
        "What did Kennedy do before he became president?",
        "Before he became president, what did Kennedy do?",
        "How long does it take to build a ship?",
        "Is it true that Lyon is in France?",
        "How many moons are there?",
        "Who wrote It?",
        "Who stars in This Is Us?",
        "Which band, whose singer is Ann Lee, sang this song of 1999, 'Rain'?",
        "Who is the author of Dune?",
        "What is the text of the First Amendment?",
        "which president of the united states gave his inaugural address in the rain",
        "???",
        "",
    ],
)
def test_a_question_that_stands_alone_is_left(question):
    assert reference_fault(question) is None


@pytest.mark.parametrize(
    ("reader", "file"),
    [
        ("hotpotqa", "hotpotqa/hotpot_dev_distractor_v1.json"),
        ("two_wiki", "2wikimultihopqa/dev.json"),
        ("musique", "musique/musique_ans_v1.0_dev.jsonl"),
        ("strategyqa", "strategyqa/train.json"),
        ("nq_open", "nq_open/NQ-open.dev.jsonl"),
        ("flashrag", "triviaqa/triviaqa_open_flashrag.jsonl"),
        ("flashrag", "popqa/popqa_flashrag.jsonl"),
        ("cwq", "cwq/ComplexWebQuestions_test.json"),
        ("grailqa", "grailqa/grailqa_v1.0_dev.json"),
        ("graphquestions", "graphquestions/graphquestions.testing.json"),
        ("asqa", "asqa/qa_feedback_dev.json"),
    ],
)
def test_fewer_than_one_in_fifty_real_questions_is_rejected_wrongly(reader, file):
    if not (DATA / file).exists():
        pytest.skip(f"needs shared/data/{file}")
    questions = [question.text for question in read_questions([DATA / file], reader=reader)]
    assert sum(reference_fault(question) is not None for question in questions) < len(questions) / 50


def test_most_follow_up_questions_with_a_pronoun_are_found():
    if not (DATA / "canard" / "dev.json").exists():
        pytest.skip("needs shared/data/canard/dev.json")
    asked = [turn["Question"] for turn in json.loads((DATA / "canard" / "dev.json").read_text())]
    pronouns = {"it", "he", "she", "they", "him", "them", "his", "her", "their", "its"}
    follow_ups = [question for question in asked if pronouns & set(question.lower().strip("?").split())]
    assert sum(reference_fault(question) is not None for question in follow_ups) > 0.85 * len(follow_ups)
