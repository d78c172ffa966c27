import pytest

HEADER = "id\tsubj\ts_pop\tquestion\tpossible_answers"
ROW = '7\tDune\t99\tWho directed Dune?\t"[""Torvel"", ""M. Torvel""]"'


def table(*rows):
    return "\n".join([HEADER, *rows]) + "\n"


@pytest.mark.parametrize(("s_pop", "popularity"), [(0, "long_tail"), (99, "long_tail"), (100, "popular")])
def test_a_subject_of_fewer_than_100_views_is_long_tail(read_rows, s_pop, popularity):
    (question,) = read_rows("popqa", text=table(ROW.replace("99", str(s_pop))), name="popQA.tsv")
    assert (question.type, question.answers, question.split) == (popularity, ["Torvel", "M. Torvel"], "test")


def test_the_long_tail_alone_can_be_read(read_rows):
    rows = [ROW, ROW.replace("99", "100").replace("7\t", "8\t")]
    (question,) = read_rows("refinery.questions.popqa:LONG_TAIL", text=table(*rows), name="popQA.tsv")
    assert (question.id, question.type) == ("7", "long_tail")


def test_line_separators_inside_a_cell_do_not_split_it(read_rows):
    (question,) = read_rows("popqa", text=table(ROW.replace("directed", "really\u2028directed")), name="popQA.tsv")
    assert question.text == "Who really\u2028directed Dune?"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW.replace("99", "many"), "field 's_pop': Input should be a valid integer, unable to parse string as an integer."),
        (
            ROW.replace('"[""Torvel"", ""M. Torvel""]"', "Torvel"),
            "field 'possible_answers': Invalid JSON: expected value at line 1 column 1.",
        ),
        ("7\tDune\t99", "field 'question': Field required."),
        ("7\t" + "x" * 200_000, "not a row of a TSV table (field larger than field limit (131072))."),
    ],
)
def test_a_malformed_row_is_named_by_its_line(fault, row, said):
    assert fault("popqa", text=table(ROW, row), name="popQA.tsv") == f"popQA.tsv:3: {said}"


def test_the_release_reads_whole(release):
    questions = release("popqa", "popqa/popQA.tsv")
    assert len(questions) == 600
    assert sum(question.type == "long_tail" for question in questions.values()) == 60
    first = questions["test_10207"]
    assert (first.text, first.answers) == ("Who was the composer of Easy Living?", ["Ralph Rainger", "Ralph Reichenthal"])
