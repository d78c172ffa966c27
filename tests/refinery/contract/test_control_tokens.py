import json
from copy import deepcopy

import pytest

from refinery.contract.control_tokens import MANIFEST_FILE, RQ_RAG, SELF_RAG, check_manifest, token_for, write_manifest
from refinery.errors import CheckpointError


def test_added_tokens_get_consecutive_ids_in_the_authors_order(tiny_tokenizer, control_tokenizer):
    ids = [control_tokenizer.convert_tokens_to_ids(token.token) for token in RQ_RAG]
    assert ids == list(range(len(tiny_tokenizer), len(tiny_tokenizer) + len(RQ_RAG)))


def test_only_the_evidence_markers_are_written_by_the_environment():
    assert [token.token for token in RQ_RAG if token.writer == "environment"] == ["[R_Evidences]", "[/R_Evidences]"]


def test_a_role_names_one_token():
    assert len({token.role for token in RQ_RAG}) == len(RQ_RAG)
    assert token_for("decompose").token == "[S_Decomposed_Query]"


def test_a_checkpoint_agrees_with_the_tokenizer_it_was_saved_with(tmp_path, control_tokenizer):
    write_manifest(tmp_path, RQ_RAG, control_tokenizer)
    assert check_manifest(tmp_path, control_tokenizer, needed=RQ_RAG) is None


def test_a_tokenizer_with_other_ids_is_refused(tmp_path, control_tokenizer):
    write_manifest(tmp_path, RQ_RAG, control_tokenizer)
    manifest = json.loads((tmp_path / MANIFEST_FILE).read_text())
    manifest["control_tokens"][3]["id"] += 1
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"'\[S_Disambiguated_Query\]' was trained as id .* but the tokenizer gives"):
        check_manifest(tmp_path, control_tokenizer)


def test_a_tokenizer_without_the_manifests_tokens_is_refused(tmp_path, control_tokenizer, tiny_tokenizer):
    write_manifest(tmp_path, RQ_RAG, control_tokenizer)
    with pytest.raises(CheckpointError, match="Use the tokenizer saved with this checkpoint"):
        check_manifest(tmp_path, tiny_tokenizer)


def test_a_missing_control_token_is_named(tmp_path, tiny_tokenizer):
    with pytest.raises(CheckpointError, match=r"its tokenizer lacks control token '\[A_Response\]'"):
        check_manifest(tmp_path, tiny_tokenizer, needed=RQ_RAG)


def test_a_checkpoint_without_control_tokens_needs_no_manifest(tmp_path, tiny_tokenizer):
    assert check_manifest(tmp_path, tiny_tokenizer) is None


def test_self_rags_tokens_come_in_its_authors_order(tiny_tokenizer):
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [token.token for token in SELF_RAG]})
    ids = [tokenizer.convert_tokens_to_ids(token.token) for token in SELF_RAG]
    assert ids == list(range(len(tiny_tokenizer), len(tiny_tokenizer) + 15))
    assert len({token.role for token in SELF_RAG}) == 15
