from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from refinery.llms.served.replies.json_reply import read_reply


class Answer(BaseModel):
    answer: str


class Pair(BaseModel):
    question: Annotated[str, Field(min_length=1)]
    answer: Annotated[str, Field(min_length=1)]


class Pairs(BaseModel):
    questions: list[Pair]


class SubAnswer(BaseModel):
    sub_answer: str
    note: str = ""


class Mixed(BaseModel):
    answer: str
    sure: bool


ONE = [("Who made Dune?", "Maria Torvel")]
TWO = [*ONE, ("When?", "In 1994: a Monday")]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Question: Who made Dune?\nAnswer: Maria Torvel", ONE),
        ("question : Who made Dune?  \r\n\r\n  ANSWER: Maria Torvel\r\n", ONE),
        ("Sure! Here it is:\n\n**Question:** Who made Dune?\n**Answer**: Maria Torvel\n\n", ONE),
        ("**Question: Who made Dune?**\n**Answer:** **Maria Torvel**", ONE),
        ("1. Question: Who made Dune?\n   Answer: Maria Torvel\n2. Question: When?\n   Answer: In 1994: a Monday", TWO),
        ("### Question 1: Who made Dune?\n- Answer 1: Maria Torvel\n### Question 2: When?\n- Answer 2: In 1994: a Monday", TWO),
        ("Answer: Maria Torvel\nQuestion: Who made Dune?", ONE),
        ("Note: two facts.\nQuestion: Who made Dune?\nReason: it says so.\nAnswer: Maria Torvel", ONE),
    ],
)
def test_lines_that_name_the_fields_are_read(reply, expected):
    read, how = read_reply(reply, Pairs)
    assert ([(pair.question, pair.answer) for pair in read.questions], how) == (expected, "lines")


@pytest.mark.parametrize(
    "reply",
    [
        "Question: Who made Dune?",
        "Question: Who made Dune?\nAnswer:",
        "Question:\nWho made Dune?\nAnswer:\nMaria Torvel",
        "Question: Who made Dune?\nAnswer: Maria Torvel\nQuestion: When?",
        "Question: Who made Dune?\nQuestion: When?\nAnswer: Maria Torvel",
        "Question: Who made Dune? Answer: Maria Torvel",
        "Question: Who made Dune? Answer: Maria Torvel\nAnswer: Maria Torvel",
        "Q: Who made Dune?\nA: Maria Torvel",
        "The question: Who made Dune?\nThe answer: Maria Torvel",
        "Questions: Who made Dune?\nAnswers: Maria Torvel",
        '{"question: Who\nQuestion: Who made Dune?\nAnswer: Maria Torvel',
        "Who made Dune? Maria Torvel did.",
        "Question: Who made Dune?\nAnswer: Maria Torvel\n\nHowever, the passage also names Ann Lee.",
        "Question: Who made Dune?\nAnswer: Maria\nTorvel",
        "I cannot write a question about it. An example of another:\nQuestion: Who made Dune?\nAnswer: Maria Torvel",
        "1. " * 5_000 + "Question",
    ],
)
def test_half_a_record_or_an_ambiguous_one_is_not_read(reply):
    with pytest.raises(ValueError, match=r"there is no JSON object in it|Invalid JSON|field"):
        read_reply(reply, Pairs)


def test_a_shape_of_strings_takes_one_line_for_each_field():
    assert read_reply("Sure!\n**Answer:** Lyon", Answer) == (Answer(answer="Lyon"), "lines")
    assert read_reply("Sub answer: Lyon", SubAnswer) == (SubAnswer(sub_answer="Lyon"), "lines")
    assert read_reply("sub_answer: Lyon\nNote: [A_Response] <|im_end|>", SubAnswer)[0].note == "[A_Response] <|im_end|>"


@pytest.mark.parametrize(
    ("reply", "shape"), [("Answer: Lyon\nAnswer: Oslo", Answer), ("Answer: Lyon\nSure: true", Mixed), ("Lyon", Answer), ("Answer:", Answer)]
)
def test_nothing_is_guessed_for_one_record(reply, shape):
    with pytest.raises(ValueError, match="there is no JSON object in it"):
        read_reply(reply, shape)
