"""What any page is, whatever it shows: one file, nothing from outside, nothing that runs but its own script."""

import base64
import hashlib
import re

import pytest

from refinery.errors import RunDirError
from refinery.reporting.pages.write import write_page

HOSTILE = '</script><script>alert(1)</script><!-- packs --><img src="https://example.org/x" onerror=alert(2)>'


@pytest.fixture
def write(tmp_path):
    def write_rows(count, title="a run", text="Who?"):
        row = {"id": "q", "text": text, "groups": [], "cells": [[{"text": text, "score": float("inf")}]]}
        rows = ((row | {"id": f"q{n}"}, {"facts": [("note", f"{n} {text}")], "runs": [None]}) for n in range(count))
        runs = [{"name": title, "views": ["answer"], "own": 0}]
        words = {"right": "right", "wrong": "wrong", "view": "view"}
        path = tmp_path / "page.html"
        assert write_page(path, title=title, runs=runs, rows=rows, total=count, words=words, note="") == count
        return path

    return write_rows


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 120])
def test_every_row_is_in_the_pack_that_the_page_looks_for_it_in(write, read_page, count):
    index, details = read_page(write(count))
    assert len(index["rows"]) == len(details) == count
    assert [row["id"] for row in index["rows"]] == [f"q{n}" for n in range(count)]
    assert [detail["facts"][0][1] for detail in details] == [f"{n} Who?" for n in range(count)]


def test_text_from_outside_is_no_markup(write, read_page):
    path = write(3, title=HOSTILE, text=HOSTILE)
    html = path.read_text()
    assert "<script>alert" not in html
    assert "<img" not in html
    index, details = read_page(path)
    assert index["rows"][0]["text"] == HOSTILE
    assert details[2]["facts"] == [["note", f"2 {HOSTILE}"]]


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(write):
    html = write(1).read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == _hash(re.findall(r"<script>(.*?)</script>", html, re.DOTALL))
    assert rules["style-src"] == _hash(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))


def test_the_page_names_no_address(write):
    assert not re.search(r"""(https?:)?//[a-z]|(src|href)=|@import|url\(""", write(1).read_text())


def test_no_number_is_left_that_json_has_not(write, read_page):
    index, _ = read_page(write(1))
    assert index["rows"][0]["cells"][0][0]["score"] is None


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(RunDirError, match="page.html: cannot be written"):
        write_page(tmp_path / "nowhere" / "page.html", title="", runs=[], rows=[], total=0, words={}, note="")


def _hash(inside: list[str]) -> str:
    (text,) = inside
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
