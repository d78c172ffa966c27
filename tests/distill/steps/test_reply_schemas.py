"""Lists whose schema ends them, for teachers that are held to schemas and would repeat an item until their tokens run out."""

import pytest
from pydantic import ValidationError

from distill.steps.refinement.row import Answer, FewQueries, Queries, SearchDecision
from distill.steps.reply_schemas import MOST_ITEMS, ended


@pytest.mark.parametrize("reply", [Queries, SearchDecision])
def test_only_the_end_of_the_list_is_new_in_the_schema(reply):
    schema = ended(reply).model_json_schema()
    assert schema["properties"]["queries"].pop("maxItems") == MOST_ITEMS + 1
    assert schema == reply.model_json_schema()


@pytest.mark.parametrize("reply", [Answer, FewQueries])
def test_a_reply_without_a_list_or_with_an_end_of_its_own_is_left_as_it_is(reply):
    assert ended(reply) is reply


def test_a_longer_list_is_read_where_no_schema_holds_the_reply():
    assert len(ended(Queries, 2).model_validate({"queries": ["a"] * 30}).queries) == 30


def test_what_the_reply_checks_is_checked():
    with pytest.raises(ValidationError, match="at least 1 item"):
        ended(Queries).model_validate({"queries": []})
    with pytest.raises(ValidationError, match="queries is empty"):
        ended(SearchDecision).model_validate({"search": True, "queries": []})


def test_a_schema_is_made_once():
    assert ended(Queries, 20) is ended(Queries, 20)
