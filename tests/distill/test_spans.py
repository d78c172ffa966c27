"""What a row tells OpenTelemetry: the calls to its teacher under it, and why it was rejected, in a word."""

from helpers.scripted_server import chat_reply, scripted
from helpers.spans import told, tree

from distill.__main__ import main


def test_a_row_has_its_calls_under_it_and_one_that_is_rejected_says_why(mock_recipe, spans):
    with scripted(
        lambda body: (200, chat_reply("the secret reply" if "film 1?" in str(body) else chat_reply()["choices"][0]["message"]["content"]))
    ) as server:
        assert main([str(mock_recipe(server.address, count=3, max_failure_share=0.5))]) == 0
    row = "invoke_workflow decomposition"
    assert tree(spans()) == {"": [row] * 3, row: ["chat mock"] * 4}  # a reply that does not fit is asked for once more
    failed = {span.attributes["refinery.row_id"]: span.attributes.get("error.type") for span in spans() if span.name == row}
    assert failed == {"q0": None, "q1": "malformed", "q2": None}
    assert "secret" not in told(spans())
    assert "film" not in told(spans())


def test_a_reply_from_the_store_is_no_call(mock_recipe, spans, tmp_path):
    with scripted(lambda body: (200, chat_reply())) as server:
        path = str(mock_recipe(server.address, count=3))
        assert main([path]) == 0
        assert main([path, f"output_dir={tmp_path / 'again'}", f"store={tmp_path / 'run' / 'effects.sqlite'}"]) == 0
    assert [span.name for span in spans()].count("chat mock") == 3
    assert [span.name for span in spans()].count("invoke_workflow decomposition") == 6
