import pytest

AI2 = {
    "id": "a",
    "question": {
        "stem": "Dune is a ",
        "choices": [{"text": "film", "label": "A"}, {"text": "city", "label": "B"}, {"text": "sea", "label": "C"}],
    },
    "answerKey": "B",
}
HUB = {"id": "a", "question": "Dune is a", "choices": {"text": ["film", "city", "sea"], "label": ["A", "B", "C"]}, "answerKey": "B"}


@pytest.mark.parametrize("row", [AI2, HUB], ids=["AI2's schema", "the hub's schema"])
def test_both_schemas_read_alike(read_rows, row):
    (question,) = read_rows("arc", row)
    assert (question.text, question.choices, question.answers) == ("Dune is a", ["film", "city", "sea"], ["B"])


@pytest.mark.parametrize(("labels", "key", "letter"), [("1234", "4", "D"), ("ABCDE", "E", "E"), ("123", "1", "A")])
def test_the_answer_is_a_letter_whatever_the_labels_are(read_rows, labels, key, letter):
    choices = {"text": [f"choice {label}" for label in labels], "label": list(labels)}
    (question,) = read_rows("arc", HUB | {"choices": choices, "answerKey": key})
    assert (question.answers, len(question.choices)) == ([letter], len(labels))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answerKey": "D"}, "field 'answerKey': 'D' is not one of A, B, C."),
        ({"question": "Dune is a"}, "field 'choices': each text needs a label."),
        (
            {"question": "Dune is a", "choices": {"text": ["film", "city"], "label": ["A"]}},
            "field 'choices': each text needs a label.",
        ),
        ({"question": {"stem": "Dune is a"}}, "field 'question.Stem.choices': Field required."),
    ],
)
def test_a_malformed_row_is_named_by_its_line(fault, changes, said):
    assert fault("arc", AI2, AI2 | changes) == f"rows.jsonl:2: {said}"


@pytest.mark.parametrize(
    ("name", "rows", "sizes"),
    [("ARC-Challenge-Test", 600, {3, 4, 5}), ("ARC-Easy-Test", 600, {4}), ("ARC-Challenge-Test.hf", 182, {3, 4, 5})],
)
def test_the_release_reads_whole(release, name, rows, sizes):
    questions = release("arc", f"arc/{name}.jsonl").values()
    assert (len(questions), {len(question.choices) for question in questions}) == (rows, sizes)
    assert {question.answers[0] for question in questions} <= set("ABCDE")


def test_a_row_of_the_release(release):
    question = release("arc", "arc/ARC-Challenge-Test.jsonl")["Mercury_SC_400063"]
    assert question.text == "Water evaporation on the surface of Earth most likely causes the formation of"
    assert (question.choices[3], question.answers) == ("limestone.", ["D"])


def test_a_question_of_both_schemas_is_one_question(release):
    ours, hub = release("arc", "arc/ARC-Challenge-Test.jsonl"), release("arc", "arc/ARC-Challenge-Test.hf.jsonl")
    shared = ours.keys() & hub.keys()
    assert [ours[id] for id in shared] == [hub[id] for id in shared]
