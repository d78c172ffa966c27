def message(text, *replies, **values):
    return {"message_id": text.split()[0], "text": text, "replies": list(replies)} | values


TREE = {
    "message_tree_id": "Who",
    "prompt": message(
        "Who made it?",
        message("Hall did.", rank=1),
        message("Torvel did.", message("Where is she?", message("In Lyon.")), message("Thanks"), rank=0),
    ),
}


def test_every_message_of_the_user_is_a_question_with_what_was_said_before_it(read_rows):
    questions = read_rows("oasst", TREE)
    assert [(question.id, question.history) for question in questions] == [
        ("Who", None),
        ("Where", ["Who made it?", "Torvel did."]),
        ("Thanks", ["Who made it?", "Torvel did."]),
    ]


def test_answers_are_the_replies_the_best_ranked_first(read_rows):
    assert [question.answers for question in read_rows("oasst", TREE)] == [["Torvel did.", "Hall did."], ["In Lyon."], []]


def test_what_follows_a_deleted_message_is_left_out(read_rows):
    deleted = message("Hall did.", message("Really?"), deleted=True)
    (question,) = read_rows("oasst", {"prompt": message("Who made it?", deleted, message("Torvel did."))})
    assert question.answers == ["Torvel did."]


def test_a_malformed_message_is_named_by_its_line(fault):
    said = fault("oasst", TREE, {"prompt": message("Who?", {"message_id": "x"})})
    assert said == "rows.jsonl:2: field 'prompt.replies.0.text': Field required."


def test_the_release_reads_whole(release):
    questions = release("oasst", "oasst/en_tree.jsonl")
    assert len(questions) == 281  # of 57 trees
    assert sum(not question.answers for question in questions.values()) == 127
    assert {len(question.history or []) for question in questions.values()} == {0, 2, 4}
    follow_up = questions["85575cae-fb44-4859-a9ea-ee5ed4adfb95"]
    assert follow_up.text == "Can you provide me some sample code to access the InstructGPT API in python?"
    assert follow_up.history[0] == "What differences are there between ChatGPT and Instructional GPT?"
