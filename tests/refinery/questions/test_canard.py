TITLES = ["Maria Torvel", "Early life"]
FIRST = {
    "History": TITLES,
    "QuAC_dialog_id": "C_1_0",
    "Question": "Where was she born?",
    "Question_no": 1,
    "Rewrite": "Where was Torvel born?",
}
SECOND = {
    "History": [*TITLES, "Where was she born?", "In Lyon."],
    "QuAC_dialog_id": "C_1_0",
    "Question": "When?",
    "Question_no": 2,
    "Rewrite": "When was Torvel born?",
}


def test_the_titles_are_nobodys_turn(read_rows):
    assert [question.history for question in read_rows("canard", FIRST, SECOND)] == [None, ["Where was she born?", "In Lyon."]]


def test_the_reply_stands_in_the_next_rows_history_in_whatever_order_they_come(read_rows):
    answers = {question.id: question.answers for question in read_rows("canard", SECOND, FIRST)}
    assert answers == {"C_1_0_q#0": ["In Lyon."], "C_1_0_q#1": []}


def test_the_rewrite_is_the_reading(read_rows):
    assert [reading.text for reading in read_rows("canard", FIRST, SECOND)[1].disambiguations] == ["When was Torvel born?"]


def test_a_history_of_another_length_is_named_by_its_line(fault):
    said = fault("canard", FIRST, SECOND | {"History": [*TITLES, "Where was she born?"]})
    assert said == "rows.jsonl:2: field 'History': 1 turns before question 2, expected 2."


def test_the_release_reads_whole(release):
    questions = release("canard", "canard/dev.json")
    assert len(questions) == 603
    assert sum(not question.answers for question in questions.values()) == 86  # the last of each dialogue
    second = questions["C_15b80341a4984feaaa7bc6c1044456fb_0_q#1"]
    assert second.text == "Are there any other interesting aspects about this article?"
    assert second.history[0] == "What changes did King implement in Jazz?"
    assert second.answers[0].startswith('After completing her "No Bullshit Tour,"')
