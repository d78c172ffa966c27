TOPIC = {
    "number": 81,
    "turn": [
        {
            "number": 1,
            "raw_utterance": "Who made Dune?",
            "manual_rewritten_utterance": "Who made Dune?",
            "manual_canonical_result_id": "MARCO_1",
        },
        {"number": 2, "raw_utterance": "Where was she born? ", "manual_rewritten_utterance": "Where was Torvel born?"},
        {"number": 3, "raw_utterance": "And when?"},
    ],
}


def test_a_topic_gives_a_question_a_turn(read_rows):
    questions = read_rows("cast", TOPIC)
    assert [(question.id, question.text, question.split) for question in questions] == [
        ("81_1", "Who made Dune?", "test"),
        ("81_2", "Where was she born?", "test"),
        ("81_3", "And when?", "test"),
    ]
    assert [question.supporting for question in questions] == [["MARCO_1"], None, None]


def test_replies_that_nobody_recorded_are_empty(read_rows):
    histories = [question.history for question in read_rows("cast", TOPIC)]
    assert histories == [None, ["Who made Dune?", ""], ["Who made Dune?", "", "Where was she born? ", ""]]


def test_a_canonical_passage_is_the_reply(read_rows):
    first = TOPIC["turn"][0] | {"passage": "Torvel made Dune."}
    assert read_rows("cast", TOPIC | {"turn": [first, *TOPIC["turn"][1:]]})[1].history == ["Who made Dune?", "Torvel made Dune."]


def test_the_manual_rewrite_is_the_reading(read_rows):
    readings = [question.disambiguations for question in read_rows("cast", TOPIC)]
    assert (readings[1][0].text, readings[2]) == ("Where was Torvel born?", None)


def test_a_malformed_turn_is_named_with_its_row(fault):
    said = fault("cast", TOPIC, {"number": 82, "turn": [{"number": 1}]})
    assert said == "rows.jsonl:2: field 'turn.0.raw_utterance': Field required."


def test_the_release_reads_whole(release):
    questions = release("cast", "cast/2020_manual_evaluation_topics_v1.0.json")
    assert len(questions) == 127  # of 15 topics
    second = questions["81_2"]
    assert (second.text, second.disambiguations[0].text) == (
        "Now it stopped working. Why?",
        "Now my garage door opener stopped working. Why?",
    )
    assert second.history == ["How do you know when your garage door opener is going bad?", ""]
    assert second.supporting == ["MARCO_3942603"]
