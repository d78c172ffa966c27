from pathlib import Path

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
