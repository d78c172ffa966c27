ROW = {"id": "test_3", "question": "Who made Dune? ", "golden_answers": ["Torvel", "M. Torvel", "Torvel"]}


def test_dataset_and_split_are_those_of_folder_and_id(read_rows):
    (question,) = read_rows("flashrag", ROW, name="nq/rows.jsonl")
    assert (question.dataset, question.split, question.type) == ("nq", "test", None)
    assert (question.text, question.answers) == ("Who made Dune?", ["Torvel", "M. Torvel"])


def test_an_id_of_ones_own_leaves_the_split_to_the_files_name(read_rows):
    assert read_rows("flashrag", ROW | {"id": "q1"}, name="nq/dev.jsonl")[0].split == "dev"


def test_popqas_popularity_is_read(read_rows):
    assert read_rows("flashrag", ROW | {"metadata": {"s_pop": 99, "prop": "director"}})[0].type == "long_tail"


def test_a_malformed_row_is_named_by_its_line(fault):
    assert (
        fault("flashrag", ROW, ROW | {"golden_answers": "Torvel"}) == "rows.jsonl:2: field 'golden_answers': Input should be a valid list."
    )


def test_triviaqas_questions_read_whole(release):
    questions = release("flashrag", "triviaqa/triviaqa_open_flashrag.jsonl")
    assert (len(questions), {question.dataset for question in questions.values()}) == (600, {"triviaqa"})
    assert questions["test_9866"].answers == ["Gary Barlow", "GARY BARLOW"]


def test_popqa_reads_as_from_its_own_release(release):
    assert release("flashrag", "popqa/popqa_flashrag.jsonl") == release("popqa", "popqa/popQA.tsv")
