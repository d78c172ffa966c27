from refinery.reporting.markdown import plain, table, table_block


def test_a_table_keeps_a_cell_in_its_row_and_its_column():
    assert table(["system", "EM"], [["`ra|isf`", 0.51239], ["two\nlines", 7]]) == [
        "| system | EM |",
        "|---|---|",
        "| `ra\\|isf` | 0.5124 |",
        "| two lines | 7 |",
    ]


def test_numbers_are_aligned_to_the_right_of_a_first_column_of_names():
    assert table(["system", "EM", "F1"], [], numbers=True)[1] == "|---|---:|---:|"


def test_a_block_ends_with_an_empty_line_and_is_nothing_without_rows():
    assert table_block(["split"], [["test"]])[-1] == ""
    assert table_block(["split"], []) == []


def test_plain_text_opens_no_tag_and_no_escape():
    assert plain(r"<b>\|") == r"&lt;b>\\|"
