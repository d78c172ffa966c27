"""Damaged files of a checkpoint."""

import shutil

import pytest

from refinery.contract.control_tokens import MANIFEST_FILE, read_manifest, seal_weights
from refinery.errors import CheckpointError
from refinery.llms.weights.checkpoint import load_checkpoint


@pytest.fixture
def sealed(tiny_bases, tmp_path):
    """A checkpoint with fingerprints of its weights."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_bases["tied"], folder)
    seal_weights(folder)
    return folder


def test_a_flipped_bit_in_the_weights_is_refused(sealed):
    load_checkpoint(str(sealed))
    weights = bytearray((sealed / "model.safetensors").read_bytes())
    weights[-40] ^= 64
    (sealed / "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match="model.safetensors is not as it was saved. Copy or download"):
        load_checkpoint(str(sealed))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"[1]"])
def test_a_damaged_manifest_is_refused_in_one_line(sealed, content):
    (sealed / MANIFEST_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{MANIFEST_FILE}: (not valid JSON|is not a manifest)"):
        read_manifest(sealed)


def test_a_damaged_tokenizer_is_refused_in_one_line(sealed):
    (sealed / "tokenizer.json").write_text((sealed / "tokenizer.json").read_text()[:500])
    with pytest.raises(CheckpointError, match="its tokenizer cannot be loaded"):
        load_checkpoint(str(sealed))
