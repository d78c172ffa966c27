"""Groups of questions whose results are reported separately, in addition to those of all questions."""

from refinery.contract.records import Question

ALL = "all"  # the group of all questions


# Every question in these datasets takes several hops, even if the release does not list them (HotpotQA's does not).
_OF_SEVERAL_HOPS = ("hotpotqa", "musique", "two_wiki")


def groups_of(question: Question, several_datasets: bool) -> list[str]:
    """The dataset if there are several, the question's type, whether it is answerable, and single or multi-hop, as far as it is known."""
    groups = [question.dataset] if several_datasets and question.dataset else []
    groups += [question.type] if question.type else []
    if question.answerable is not None:
        groups.append("answerable" if question.answerable else "unanswerable")
    if question.decomposition or question.dataset in _OF_SEVERAL_HOPS:
        several = question.dataset in _OF_SEVERAL_HOPS or len(question.decomposition or []) > 1
        groups.append("multi_hop" if several else "single_hop")
    return list(dict.fromkeys(groups))
