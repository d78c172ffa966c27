def test_rows_without_ids_are_numbered_within_their_split(read_rows):
    rows = [{"question": " who made dune ", "answer": ["Torvel", "M. Torvel"]}, {"question": "where is oslo", "answer": ["Norway"]}]
    questions = read_rows("nq_open", *rows, name="NQ-open.dev.jsonl")
    assert [(question.id, question.text) for question in questions] == [("dev_0", "who made dune"), ("dev_1", "where is oslo")]
    assert questions[0].answers == ["Torvel", "M. Torvel"]


def test_an_answer_that_is_no_list_is_named_with_its_line(read_rows, fault):
    row = {"question": "who", "answer": "Torvel"}
    assert fault("nq_open", {**row, "answer": ["Torvel"]}, row) == "rows.jsonl:2: field 'answer': Input should be a valid list."


def test_the_release_reads_whole(release):
    questions = release("nq_open", "nq_open/NQ-open.dev.jsonl")
    assert len(questions) == 600
    assert questions["dev_300"].text == "nobel laureate who began career as accountant in calcutta"
    assert questions["dev_300"].answers == ["Amartya Sen"]
