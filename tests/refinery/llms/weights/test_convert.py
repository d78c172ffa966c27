"""Conversion of .bin weights, on tiny checkpoints saved as PyTorch saved them before safetensors."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from refinery.cli import main
from refinery.commands.convert_weights import forecast
from refinery.errors import CheckpointError
from refinery.llms.weights.checkpoint import load_base
from refinery.llms.weights.convert import convert_weights
from refinery.runtime.forecast import Expected


@pytest.fixture
def pickled(tiny_bases, tmp_path):
    """A copy of a tiny checkpoint with .bin weights only, and its weights."""
    folder = tmp_path / "pickled"
    shutil.copytree(tiny_bases["tied"], folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    return folder, weights


def test_a_converted_checkpoint_has_the_same_weights_and_is_loaded(pickled, tmp_path, capsys):
    folder, weights = pickled
    assert main(["convert-weights", str(folder), "--output", str(tmp_path / "new")]) == 0
    assert f"{tmp_path / 'new' / 'model.safetensors'}: " in capsys.readouterr().out
    found = load_file(tmp_path / "new" / "model.safetensors")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())
    assert load_base(str(tmp_path / "new"))[0].dtype == next(iter(weights.values())).dtype
    assert not list((tmp_path / "new").glob("*.bin"))


def test_both_copies_of_the_weights_are_planned():
    plan = forecast(["facebook/contriever-msmarco", "--output", "new"], Expected())
    assert plan.disk_bytes is not None
    low, high = (size / 1e6 for size in plan.disk_bytes)
    assert (420 < low < 450, high) == (True, 2 * low)  # 109 million parameters


def test_bin_weights_are_refused_with_the_command_that_converts_them(pickled):
    folder, _ = pickled
    with pytest.raises(CheckpointError, match=f"has no weights as safetensors.*refinery convert-weights {folder} --output DIR"):
        load_base(str(folder))


def test_an_encoder_is_refused_with_the_command_too(pickled):
    pytest.importorskip("sentence_transformers")
    from refinery.retrievers.search.encoder import EncoderConfig, load_encoder

    with pytest.raises(CheckpointError, match=f"cannot be loaded.*refinery convert-weights {pickled[0]} --output DIR"):
        load_encoder(EncoderConfig(model=str(pickled[0])))


class _RunsCode:
    def __reduce__(self):
        return Path.touch, (Path("was_run"),)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"weight": _RunsCode()}, "is not opened, because it holds more than weights"),
        ({"weight": torch.zeros(2), "step": 3}, "'step' is not a tensor"),
        ([torch.zeros(2)], "holds list and not weights by name"),
    ],
)
def test_what_is_more_than_weights_is_not_opened(pickled, tmp_path, monkeypatch, content, fault):
    monkeypatch.chdir(tmp_path)
    torch.save(content, pickled[0] / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=fault):
        convert_weights(str(pickled[0]), tmp_path / "new")
    assert not {path.name for path in tmp_path.iterdir()} & {"was_run", "new", "new.partial"}


def test_a_damaged_file_is_named(pickled, tmp_path):
    (pickled[0] / "pytorch_model.bin").write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: is not opened, because it .* is damaged"):
        convert_weights(str(pickled[0]), tmp_path / "new")


def test_tied_weights_and_several_files_are_converted_with_their_index(pickled, tmp_path):
    folder, _ = pickled
    (folder / "pytorch_model.bin").unlink()
    shared = torch.arange(6.0).reshape(2, 3)
    names = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00001-of-00002.bin", "c": "pytorch_model-00002-of-00002.bin"}
    torch.save({"a": shared, "b": shared.T}, folder / names["a"])
    torch.save({"c": shared}, folder / names["c"], _use_new_zipfile_serialization=False)  # as before PyTorch 1.6
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    first, second = convert_weights(str(folder), tmp_path / "new")
    assert torch.equal(load_file(first)["b"], shared.T)
    assert torch.equal(load_file(second)["c"], shared)
    assert json.loads((tmp_path / "new" / "model.safetensors.index.json").read_text())["weight_map"]["c"] == second.name


@pytest.mark.parametrize(("change", "fault"), [("used", "exists already. Choose another --output."), ("empty", "nothing to convert")])
def test_an_output_in_use_and_a_folder_without_weights_are_refused(pickled, tmp_path, change, fault):
    if change == "used":
        (tmp_path / "new").mkdir()
    else:
        (pickled[0] / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=fault):
        convert_weights(str(pickled[0]), tmp_path / "new")
