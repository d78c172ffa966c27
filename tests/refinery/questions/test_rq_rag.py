FOUND = (
    "[S_Rewritten_Query]\nmaker of Dune\n[EOS][R_Evidences]\nTitle: Dune\nText: Torvel made it.\n[/R_Evidences][A_Response]\nTorvel\n[EOS]"
)


def said(role, content):
    return {"role": role, "content": content}


ROW = {"id": 7, "dataset": "arc", "messages": [said("system", "Help."), said("user", "Who made Dune? "), said("assistant", FOUND)]}


def test_the_question_is_what_was_asked_and_the_answer_what_the_row_ends_in(read_rows):
    (question,) = read_rows("rq_rag", ROW)
    assert (question.id, question.text, question.answers, question.dataset) == ("7", "Who made Dune?", ["Torvel"], "arc")
    assert (question.history, question.passages) == (None, None)


def test_earlier_turns_are_the_history_without_their_searches(read_rows):
    later = [*ROW["messages"], said("user", "Thanks"), said("assistant", "[A_Response]\nWelcome.\n[EOS]")]
    (question,) = read_rows("rq_rag", ROW | {"messages": later})
    assert (question.text, question.history, question.answers) == ("Thanks", ["Who made Dune? ", "Torvel"], ["Welcome."])


def test_a_row_that_is_no_dialogue_is_named(fault):
    assert fault("rq_rag", ROW, ROW | {"messages": [said("user", "Who?")]}).startswith(
        "rows.jsonl: row 2: its messages do not alternate between user"
    )
