from refinery.contract.records import Question
from refinery.question_splits import SplitQuestions, split_questions

SHARES = {"test": 0.2, "validation": 0.2}


def split(*texts: str, splits: tuple[str, ...] = ()) -> SplitQuestions:
    given = [Question(id=str(number), text=text) for number, text in enumerate(texts)]
    given = [question.model_copy(update={"split": split}) for question, split in zip(given, splits, strict=True)] if splits else given
    return split_questions(given, SHARES)


def test_a_share_of_each_held_out_split_is_taken():
    found = split(*(f"Who directed Film {number}?" for number in range(10)))
    assert {name: len(kept) for name, kept in found.by_split.items()} == {"train": 6, "validation": 2, "test": 2}


def test_splits_of_their_own_are_kept_and_a_missing_one_is_empty():
    found = split("Who directed Dune?", "Who directed Solaris?", splits=("train", "test"))
    assert {name: len(kept) for name, kept in found.by_split.items()} == {"train": 1, "validation": 0, "test": 1}


def test_a_training_question_that_repeats_a_held_out_one_is_left_out():
    texts = ("Who directed Dune?", "who directed dune", "Who directed Solaris?")
    found = split(*texts, splits=("train", "test", "train"))
    assert [(repeated.id, other.id) for repeated, other in found.same] == [("0", "1")]


def test_nearly_the_same_question_is_left_out_once():
    texts = ("In which year was the film Dune released?", "In which year was the film Dune first released?", "Who directed Solaris?")
    found = split(*texts, splits=("test", "train", "train"))
    assert [(repeated.id, other.id) for repeated, other in found.nearly_the_same] == [("1", "0")]
    assert [question.id for question in found.by_split["train"]] == ["2"]
