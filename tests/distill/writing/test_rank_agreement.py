from distill.writing.rank_agreement import RankAgreement
from refinery.contract.records import Passage, RelevanceLabel


def ranked(question, *relevant, order_agrees=None):
    """The rows of one query, best rank first."""
    return [
        RelevanceLabel(
            question_id="q",
            question=question,
            passage=Passage(id=f"{question}:{rank}", text="Text."),
            label="relevant" if is_relevant else "irrelevant",
            order_agrees=order_agrees,
        )
        for rank, is_relevant in enumerate(relevant, 1)
    ]


def test_relevance_and_rank_are_compared_query_by_query_and_dataset_by_dataset():
    agreement = RankAgreement()
    agreement.add("musique", [*ranked("whole", True, False, False), *ranked("step", False, True, False)])
    agreement.add("musique", ranked("another", False, False))
    agreement.add("hotpotqa", ranked("whole", True))
    assert agreement.report() == {
        "musique": {
            "queries": 3,
            "relevant_at_rank_1": 1,
            "relevant_within_top_k": 2,
            "passages": 8,
            "relevant_passages": 2,
            "judged_in_both_orders": 0,
            "judged_differently": 0,
        },
        "hotpotqa": {
            "queries": 1,
            "relevant_at_rank_1": 1,
            "relevant_within_top_k": 1,
            "passages": 1,
            "relevant_passages": 1,
            "judged_in_both_orders": 0,
            "judged_differently": 0,
        },
    }


def test_order_bias_is_the_share_of_passages_judged_differently_when_the_order_is_turned():
    agreement = RankAgreement()
    agreement.add("asqa", [*ranked("one", True, False, order_agrees=True), *ranked("two", False, order_agrees=False)])
    counts = agreement.report()["asqa"]
    assert (counts["judged_differently"], counts["judged_in_both_orders"]) == (1, 3)
