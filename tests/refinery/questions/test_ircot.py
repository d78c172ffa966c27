ROW = {
    "dataset": "hotpotqa",
    "question_id": "q",
    "question_text": "Who made Dune?",
    "answers_objects": [
        {"number": "", "date": {"day": "", "month": "", "year": ""}, "spans": ["Torvel"]},
        {"number": "", "spans": ["M. Torvel", "Torvel"]},
    ],
    "contexts": [
        {"idx": 0, "title": "Oslo", "paragraph_text": "A city.", "is_supporting": False},
        {"idx": 1, "title": "Dune", "paragraph_text": "Torvel made it.", "is_supporting": True},
    ],
}


def test_every_span_is_an_answer_once(read_rows):
    (question,) = read_rows("ircot", ROW, name="test_subsampled.jsonl")
    assert (question.answers, question.dataset, question.split) == (["Torvel", "M. Torvel"], "hotpotqa", "test")


def test_supporting_paragraphs_keep_their_place(read_rows):
    (question,) = read_rows("ircot", ROW)
    assert [(passage.id, passage.title) for passage in question.passages] == [("q:0", "Oslo"), ("q:1", "Dune")]
    assert question.supporting == ["q:1"]


def test_a_malformed_paragraph_is_named_by_its_line(fault):
    said = fault("ircot", ROW, ROW | {"contexts": [{"title": "Oslo"}]})
    assert said == "rows.jsonl:2: field 'contexts.0.paragraph_text': Field required."
