RELEASED = {
    "Context": ["Who made Dune?", "Torvel."],
    "Question": "Where was she born?",
    "Rewrite": "Where was Torvel born?",
    "Answer": "In Lyon.",
    "Conversation_no": 3,
    "Turn_no": 2,
}
SCAI = {"Conversation_no": 3, "Turn_no": 2, "Truth_rewrite": "Where was Torvel born?", "Truth_answer": "In Lyon."}


def test_the_release_has_the_dialogue_and_the_rewrite_as_its_reading(read_rows):
    (question,) = read_rows("qrecc", RELEASED)
    assert (question.id, question.text, question.answers) == ("3_2", "Where was she born?", ["In Lyon."])
    assert question.history == ["Who made Dune?", "Torvel."]
    assert [reading.text for reading in question.disambiguations] == ["Where was Torvel born?"]


def test_the_first_turn_has_no_history(read_rows):
    assert read_rows("qrecc", RELEASED | {"Context": []})[0].history is None


def test_scais_ground_truth_has_self_contained_questions_only(read_rows):
    (question,) = read_rows("qrecc", SCAI)
    assert (question.id, question.text, question.history, question.disambiguations) == ("3_2", "Where was Torvel born?", None, None)


def test_a_blank_answer_is_none(read_rows):
    assert read_rows("qrecc", SCAI | {"Truth_answer": " "})[0].answers == []


def test_a_malformed_row_is_named_by_its_line(fault):
    assert fault("qrecc", SCAI, SCAI | {"Turn_no": "last"}).startswith("rows.jsonl:2: field 'Turn_no': Input should be a valid integer")


def test_the_ground_truth_reads_whole(release):
    questions = release("qrecc", "qrecc/scai_ground_truth.json")
    assert (len(questions), all(question.answers for question in questions.values())) == (57, True)
    assert questions["3_4"].text == "What is atrial flutter?"
