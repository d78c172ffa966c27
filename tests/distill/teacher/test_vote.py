"""Which of several samples becomes a row's label or text."""

import pytest

from distill.teacher.partial_labels import LabeledParts
from distill.teacher.teacher import RejectedRow
from distill.teacher.vote import Sample, by_agreement, pairs_of, vote
from refinery.contract.records import Decomposition, KnowledgeLabel, Passage, RelevanceLabel, Step, Trajectory


def knows(label):
    return Sample([KnowledgeLabel(question_id="q", question="Who?", label=label)])


def relevant(*labels):
    passages = [Passage(id=str(number), text="...") for number in range(len(labels))]
    rows = [RelevanceLabel(question_id="q", question="Who?", passage=one, label=label) for one, label in zip(passages, labels, strict=True)]
    return Sample(rows)


def divided(*sub_questions):
    return Sample([Decomposition(question_id="q", question="Who?", sub_questions=list(sub_questions))])


def answered(answer, *queries):
    steps = [Step(action="rewrite", text=query) for query in queries]
    return Sample([Trajectory(question_id="q", question="Who?", steps=[*steps, Step(action="answer", text=answer)])])


@pytest.mark.parametrize(
    ("labels", "chosen", "votes"),
    [
        (["know", "unknow", "unknow"], "unknow", 2),
        (["know", "know", "know"], "know", 3),
        (["unknow", "know", "know", "unknow"], "unknow", 2),  # a tie: the label of the first sample
        (["know"], "know", 1),
    ],
)
def test_a_label_is_chosen_by_majority_and_a_tie_by_the_first_sample(labels, chosen, votes):
    found = vote([knows(label) for label in labels])
    assert ([record.label for record in found.records], found.votes) == ([chosen], [votes])


def test_each_passage_has_its_own_majority():
    found = vote([relevant("relevant", "irrelevant"), relevant("irrelevant", "irrelevant"), relevant("relevant", "relevant")])
    assert [record.label for record in found.records] == ["relevant", "irrelevant"]
    assert found.votes == [2, 2]


UNREAD = RejectedRow("malformed", "field 'label'")


def partly(**labels):
    """A sample of the passages' labels by id; None where one cannot be read."""
    rows = [
        RelevanceLabel(question_id="q", question="Who?", passage=Passage(id=part, text="..."), label=label)
        for part, label in labels.items()
        if label
    ]
    return Sample(LabeledParts(rows, [row.passage.id for row in rows], {part: UNREAD for part, label in labels.items() if label is None}))


def test_passages_that_a_sample_could_not_label_are_voted_by_the_others():
    found = vote(
        [
            partly(a="relevant", b=None, c=None),
            partly(a=None, b="irrelevant", c=None),
            partly(a="irrelevant", b="irrelevant", c=None),
        ]
    )
    assert {row.passage.id: (row.label, votes) for row, votes in zip(found.records, found.votes, strict=True)} == {
        "a": ("relevant", 1),
        "b": ("irrelevant", 2),
    }
    assert found.records.unlabeled == {"c": UNREAD}


def test_samples_are_compared_where_both_have_a_label():
    assert list(pairs_of([partly(a="relevant", b=None), partly(a="irrelevant", b="relevant")])) == [("relevant", "irrelevant")]


def test_a_text_that_two_samples_wrote_wins():
    samples = [divided("Who directed Dune?", "When was #1 born?"), divided("When was he born?"), divided("when was he born")]
    assert by_agreement(samples) == 1
    assert vote(samples).votes == [2]


def test_of_different_texts_the_one_most_like_the_others_wins():
    when, where = ["Who directed Dune?", "When was #1 born?"], ["Who directed Dune?", "Where was #1 born?"]
    samples = [divided("What is Lyon?"), divided(*when), divided(*where)]
    assert by_agreement(samples) == 1


def test_a_trajectory_is_chosen_by_its_answer_first():
    samples = [
        answered("1874", "lighthouse of Norhavn"),
        answered("1882", "Norhavn"),
        answered("In 1882.", "Norhavn"),
        answered("1882", "town"),
    ]
    found = vote(samples)
    assert (found.records[0].answer, found.votes) == ("1882", [2])
    assert by_agreement(samples) == 1


def test_samples_are_compared_by_pairs():
    assert list(pairs_of([knows("know"), knows("unknow"), knows("know")])) == [("know", "unknow"), ("know", "know"), ("unknow", "know")]
    assert list(pairs_of([answered("1882"), answered("1882", "Norhavn")])) == [("same", "same")]
