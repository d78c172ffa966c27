import time
import warnings
from pathlib import Path

import pytest

from refinery.passages.documents.base import Block, Heading
from refinery.passages.documents.html import read_html


def read(html):
    return read_html(html.encode(), Path("a.html"))


def body(html):
    return read(f"<html><body>{html}</body></html>").elements


def test_scripts_styles_navigation_and_what_is_hidden_are_not_text():
    html = (
        "<head><title>Lyon - Wiki</title><style>p {}</style></head><body><header>Site</header><nav>Menu</nav><!-- no -->"
        "<p hidden>Hidden</p><div role=navigation>More</div><p>Text.</p><script>no()</script><noscript>no</noscript>"
        "<footer>Foot</footer></body>"
    )
    document = read(html)
    assert (document.title, document.elements) == ("Lyon - Wiki", [Block("Text.")])


def test_a_page_with_a_main_element_is_that_element_and_its_heading_is_the_title():
    document = read("<title>Lyon - Wiki</title><div>Advert</div><main><h1>Lyon <b>city</b></h1><p>Text.</main><p>Foot")
    assert (document.title, document.elements) == ("Lyon city", [Heading(1, "Lyon city"), Block("Text.")])


def test_words_are_joined_as_they_are_shown():
    assert body("<p>A ci<b>ty</b> in<br>France&nbsp;<i>now</i>.<p>Next") == [Block("A city in France now."), Block("Next")]
    assert body("<div>One<div>Two</div>Three</div>") == [Block("One"), Block("Two"), Block("Three")]


def test_the_signs_beside_headings_are_not_text():
    assert body('<h2>Safety<a href="#safety">¶</a></h2><p>Text with <a href="#x">a link</a>.') == [
        Heading(2, "Safety"),
        Block("Text with a link."),
    ]


def test_lists_tables_and_code():
    html = (
        "<ul><li>one<li><p>two</p></ul>"
        "<table><caption>Rivers</caption><tr><th>a<th>b<tr><td>1<td>two <b>words</b></table>"
        "<pre>x = <i>1</i>\n  y</pre>"
    )
    assert body(html) == [
        Block("- one", "item"),
        Block("- two", "item"),
        Block("Rivers"),
        Block("| a | b |\n| 1 | two words |", "table"),
        Block("x = 1\n  y", "code"),
    ]


def test_a_table_that_arranges_the_page_is_not_a_table():
    html = "<table><tr><td><h2>Left</h2><p>Text.</p></td><td><table><tr><td>1</td><td>2</td></tr></table></td></tr></table>"
    assert body(html) == [Heading(2, "Left"), Block("Text."), Block("| 1 | 2 |", "table")]


def test_the_encoding_is_the_one_that_the_page_declares():
    content = '<meta charset="iso-8859-1"><p>Besançon</p>'.encode("latin-1")
    assert read_html(content, Path("a.html")).elements == [Block("Besançon")]


def test_a_page_of_deeply_nested_elements_is_read():
    assert [block.text for block in body("<div>" * 3_000 + "deep")] in (["deep"], [])


AROUND = "<div>Sign in</div>{}<div>Accept all cookies?</div>"


@pytest.mark.parametrize("article", ["<article>{}</article>", "<div role=article>{}</div>", "<div itemprop='articleBody'>{}</div>"])
def test_a_page_without_a_main_element_is_its_only_article(article):
    document = read("<title>Blog</title>" + AROUND.format(article.format("<h1>Lyon</h1><p>Text.</p><article>A comment</article>")))
    assert (document.title, document.elements) == ("Lyon", [Heading(1, "Lyon"), Block("Text."), Block("A comment")])


def test_a_page_of_several_articles_is_read_whole_and_a_main_element_comes_before_articles():
    several = "<article>One</article><article>Two</article>"
    assert [block.text for block in body(AROUND.format(several))] == ["Sign in", "One", "Two", "Accept all cookies?"]
    assert body(AROUND.format(f"<main>{several}</main>")) == [Block("One"), Block("Two")]
    assert body("<article hidden>Draft</article><article>One</article>Foot") == [Block("One")]


def test_the_words_of_a_cell_are_joined_as_they_are_shown():
    assert body("<table><tr><td>a ci<b>ty</b><td><p>one</p><p>two</p></table>") == [Block("| a city | one two |", "table")]


@pytest.mark.parametrize("content", ['<?xml version="1.0"?><rss><title>News</title></rss>', "https://example.org/page", "notes/about.html"])
def test_a_page_that_is_none_is_read_without_a_librarys_warning(content):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(content)


@pytest.mark.parametrize(
    "part", [*(pytest.param(part, marks=pytest.mark.slow) for part in ("<a href=x>¶</a>t ", "<b hidden>x</b>t ")), "t<br>"]
)
def test_a_page_of_many_parts_that_are_not_text_is_read_in_linear_time(part):
    begun = time.process_time()
    assert body("<p>" + part * 40_000) == [Block(" ".join(["t"] * 40_000))]
    assert time.process_time() - begun < 15


def test_a_cell_that_spans_rows_is_in_each_of_them_so_that_every_value_is_in_its_column():
    rows = "<tr><th>City<th>Year<th>Height<tr><td rowspan=2>Lyon<td>1900<td>5<tr><td>1901<td>6<tr><td colspan=2>Paris<td>7"
    table = "| City | Year | Height |\n| Lyon | 1900 | 5 |\n| Lyon | 1901 | 6 |\n| Paris | 7 |"
    assert body(f"<table>{rows}</table>") == [Block(table, "table")]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><td>a<td rowspan=2 colspan=2>b<td>c<tr><td>d<td>e", ["a | b | c", "d | b | e"]),
        ("<tr><td rowspan=0>a<td>b<tr><td>c", ["a | b", "a | c"]),
        ("<tr><td rowspan=many>a<td>b<tr><td>c", ["a | b", "c"]),
        ("<thead><tr><th rowspan=9>a<th>b</thead><tbody><tr><td>c<td>d</tbody>", ["a | b", "c | d"]),
        (f"<tr><td rowspan=2>{'long ' * 30}<td>b<tr><td>c", [f"{'long ' * 30}| b", " | c"]),
    ],
)
def test_spans_are_those_of_a_browser_and_a_long_text_comes_once(rows, lines):
    assert body(f"<table>{rows}</table>") == [Block("\n".join(f"| {line} |" for line in lines), "table")]
