import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.passages.documents.base import Block, Heading
from refinery.passages.documents.markdown import read_markdown


def read(text):
    return read_markdown(text.encode(), Path("a.md"))


def elements(text):
    return read(text).elements


def test_only_the_title_of_front_matter_is_read():
    document = read("---\ntitle: Our  guide\ntags: [secret]\n---\nText.\n")
    assert (document.title, document.elements) == ("Our guide", [Block("Text.")])
    assert read("---\ntags: []\n---\nText.").title is None


@pytest.mark.parametrize("between", ["Plain words.", "a: [", "2024-99-99"])
def test_text_between_two_rules_is_no_front_matter(between):
    document = read(f"---\n{between}\n\n---\nText.")
    assert document.title is None
    assert document.elements == [Block(between), Block("Text.")]


def test_headings_paragraphs_and_markup():
    text = "# The *guide*\n\nA [link](http://x.y), **bold**,\n`code`, ![a picture](x.png)  \nand a<br>break &amp; more.\n\n> Quoted."
    assert elements(text) == [
        Heading(1, "The guide"),
        Block("A link, bold, code, a picture and a break & more."),
        Block("Quoted."),
    ]


def test_lists_keep_their_marks():
    text = "- one\n- two\n\n  more\n\n3. three\n   - four\n"
    assert elements(text) == [
        Block("- one", "item"),
        Block("- two", "item"),
        Block("more"),
        Block("3. three", "item"),
        Block("- four", "item"),
    ]


def test_tables_and_code_keep_their_lines():
    text = "| a | b |\n|---|:-:|\n| 1 | *two* words |\n| 3 |\n\n```python\nif x:\n\n    # no heading\n```\n"
    assert elements(text) == [Block("| a | b |\n| 1 | two words |\n| 3 |  |", "table"), Block("if x:\n\n    # no heading", "code")]


def test_of_html_only_the_text_is_read():
    text = '<!-- no -->\n<p align="center">Hello &amp;\n<b>welcome</b></p>\n\n<script>\nno()\n</script>\n\nText <em>here</em>.'
    assert elements(text) == [Block("Hello & welcome"), Block("Text here.")]


def test_footnotes_follow_under_a_heading_of_their_own():
    assert elements("Text.[^1]\n\n[^1]: Lyon\n") == [Block("Text."), Heading(2, "Footnotes"), Block("Lyon")]


WORD = st.text(alphabet="abcdefg", min_size=1, max_size=5)
LINE = st.lists(WORD, min_size=1, max_size=8).map(" ".join)


@given(
    lines=st.lists(st.tuples(st.sampled_from(["{}", "- {}", "1. {}", "> {}", "**{}**", "```\n{}\n```", "| {} |\n|---|", "## {}"]), LINE))
)
def test_every_word_is_read_once_and_in_its_order(lines):
    text = "\n\n".join(form.format(line) for form, line in lines)
    read_words = [word for element in elements(text) for word in re.findall(r"[a-g]+", element.text)]
    assert read_words == [word for _, line in lines for word in line.split()]


def test_front_matter_whose_aliases_stand_for_a_billion_values_is_read():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{later}: &{later} [{','.join([f'*{before}'] * 9)}]" for before, later in pairwise("abcdefghi")]
    lines += ["k: &k {x: 1}", *(f"{later}: &{later} {{<<: [{','.join([f'*{before}'] * 9)}]}}" for before, later in pairwise("klmnopqrs"))]
    document = read("\n".join(["---", *lines, "title: Laughs", "---", "Text."]))
    assert (document.title, document.elements) == ("Laughs", [Block("Text.")])
    assert read("\n".join(["---", *lines, "title: *i", "---", "Text."])).title is None


@pytest.mark.parametrize(
    ("written", "title"), [("2024-10-01", "2024-10-01"), ("1.10", "1.10"), ("null", None), ("~", None), ("", None), ("[a]", None)]
)
def test_a_title_is_what_is_written(written, title):
    assert read(f"---\ntitle: {written}\n---\nText.").title == title


def test_a_comment_or_script_that_is_not_closed_reaches_to_the_end_and_a_tag_that_is_not_closed_is_text():
    assert elements("<div>One <b>bold</b> <!-- two\n</div>") == [Block("One bold")]
    assert elements("<div>One <script>two\n") == [Block("One")]
    assert elements("<div>One <b two\n") == [Block("One <b two")]


@pytest.mark.parametrize("part", ["<script ", "<!-- ", "<a "])
def test_html_in_which_nothing_is_closed_is_read_in_linear_time(part):
    begun = time.process_time()
    elements("<div>" + part * 60_000)
    assert time.process_time() - begun < 10
