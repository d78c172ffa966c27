ROW = {"question": "When was Dune made?", "choices": ["1984", "2021"], "answer": "2021", "sparql": "unused"}


def test_a_question_with_choices_is_multiple_choice(read_rows):
    (question,) = read_rows("kqapro", ROW, name="val.json")
    assert (question.id, question.choices, question.answers) == ("validation_0", ["1984", "2021"], ["B"])


def test_the_test_set_has_no_answers(read_rows):
    (question,) = read_rows("kqapro", {key: ROW[key] for key in ("question", "choices")})
    assert (question.choices, question.answers) == (["1984", "2021"], [])


def test_without_choices_the_answer_is_its_text(read_rows):
    assert read_rows("kqapro", {key: ROW[key] for key in ("question", "answer")})[0].answers == ["2021"]


def test_read_open_every_answer_is_its_text(read_rows):
    (question,) = read_rows("kqapro_open", ROW)
    assert (question.choices, question.answers) == (None, ["2021"])


def test_an_answer_that_is_no_choice_is_named_by_its_line(fault):
    assert fault("kqapro", ROW, ROW | {"answer": "1999"}) == "rows.jsonl:2: field 'answer': '1999' is not one of 1984, 2021."


def test_the_release_reads_whole(release):
    questions = release("kqapro", "kqapro/test.json")
    assert (len(questions), {len(question.choices) for question in questions.values()}) == (600, {10})
    assert questions["test_0"].text == "When was Christine Lahti nominated for Academy Award for Best Supporting Actress?"
    assert questions["test_0"].choices[0] == "1984-01-01"


def test_the_rows_with_gold_read_whole(release):
    questions = release("kqapro", "kqapro/train_val_qa.json")
    assert len(questions) == 223
    assert questions["train_0"].text == "What number of metropolitan boroughs reside within Nauru?"
    assert questions["train_0"].answers == ["0"]
