"""Under which groups a question is reported."""

import pytest

from refinery.contract.records import Question, SubQuestion
from refinery.reporting.question_groups import groups_of

HOPS = [SubQuestion(text="Who directed Dune?"), SubQuestion(text="Where was #1 born?")]


@pytest.mark.parametrize(
    ("dataset", "decomposition", "groups"),
    [
        ("musique", HOPS, ["multi_hop"]),
        ("hotpotqa", None, ["multi_hop"]),  # two hops each, but the release has no sub-questions
        ("two_wiki", HOPS[:1], ["multi_hop"]),
        ("lab", HOPS, ["multi_hop"]),
        ("lab", HOPS[:1], ["single_hop"]),
        ("nq_open", None, []),
    ],
)
def test_questions_count_as_multi_hop_by_their_dataset_or_their_decomposition(dataset, decomposition, groups):
    question = Question(id="q", text="Who?", dataset=dataset, decomposition=decomposition)
    assert groups_of(question, several_datasets=False) == groups
