"""The page of a train run in a real browser: curves, training rows and held-out answers."""

import pytest
from helpers.browser_hands import contrasts, counts, narrow_to


def test_curves_are_drawn_with_their_last_values(train_page, open_page):
    opened = open_page(train_page)
    charts = opened.page.locator(".chart")
    assert charts.locator("h2").all_inner_texts() == ["Loss", "Evaluation"]
    assert charts.first.locator(".legend").all_inner_texts() == ["loss 0.0256"]
    points = charts.first.locator("polyline").get_attribute("points").split()
    heights = [float(point.partition(",")[2]) for point in points]
    assert len(points) == 39
    assert heights == sorted(heights)  # down the page, as the loss falls


def test_the_pointer_reads_the_values_of_a_step(train_page, open_page):
    opened = open_page(train_page)
    chart = opened.page.locator(".chart").first
    chart.locator("svg").hover(position={"x": 1, "y": 60})
    assert chart.locator(".at").inner_text() == "step 1"
    assert chart.locator(".legend").inner_text() == "loss 1"
    opened.page.mouse.move(5, 5)
    assert chart.locator(".at").inner_text() == "step 39"


def test_what_trains_is_marked_in_a_training_row(train_page, open_page):
    opened = open_page(train_page)
    opened.page.locator(".example summary").first.click()
    example = opened.page.locator(".example").first
    assert example.locator(".trained").all_inner_texts() == [" know"]
    assert "<b>bold</b>" in example.locator(".masked").inner_text()


def test_held_out_errors_are_found_by_what_was_confused(train_page, open_page):
    opened = open_page(train_page)
    assert counts(opened, "confused") == {"know → unknow": 2, "unknow → know": 2}
    narrow_to(opened, "confused", "know → unknow")
    assert opened.page.inner_text("#summary").startswith("2 of 6 held-out rows")
    opened.page.locator("#table tbody tr").first.click()
    assert "<b>bold</b>" in opened.page.inner_text("#question pre")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_cut_off_and_text_stands_out_from_its_paper(train_page, open_page, width, scheme):
    opened = open_page(train_page, width=width, scheme=scheme)
    opened.page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator("img, script:not([type]) + script:not([type])").count() == 0
    assert min(contrasts(opened)) >= 4.5


def test_a_phone_shows_no_name_of_a_number_that_is_not_there(train_page, open_page):
    opened = open_page(train_page, width=400)
    opened.page.evaluate("document.querySelector('#table td.number').replaceChildren()")
    shown = [cell.is_visible() for cell in opened.page.locator("#table td.number").all()]
    assert not shown[0]
    assert all(shown[1:])
