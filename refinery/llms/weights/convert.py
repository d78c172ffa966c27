"""Weights in PyTorch's pickled format (`pytorch_model.bin`) as safetensors, which is the only format that is read.

A pickle may run any code when it is opened. PyTorch's restricted reader (`weights_only`) opens tensors, and refuses everything else.
"""

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from refinery.errors import CheckpointError
from refinery.llms.weights.hub_files import fetch

_WEIGHTS = ("pytorch_model*.bin", "adapter_model.bin")
_INDEX = "pytorch_model.bin.index.json"
_LEFT_OUT = ("*.bin", _INDEX, "*.safetensors*", "*.h5", "*.msgpack", "*.onnx", "*.pt", "*.pth", "*.pkl", "*.py", ".*")


def convert_weights(source: str, output: Path) -> list[Path]:
    """Write a checkpoint with its weights as safetensors to the new folder `output`. Returns the files of weights.

    `source` is a folder, or `owner/name[@revision]` on the hub. Raises CheckpointError if it has no `.bin` weights, if they hold anything
    but tensors, and if `output` is in use.
    """
    if output.exists():
        raise CheckpointError(f"{output}: exists already. Choose another --output.")
    folder = Path(source) if Path(source).is_dir() else fetch(source, [*_WEIGHTS, "*.json", "*.txt", "*.model", "*.jinja"])
    files = sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern))
    if not files:
        raise CheckpointError(f"{source}: has no {' or '.join(_WEIGHTS)}, so there is nothing to convert.")
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(folder, partial, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        written = [_convert(file, partial) for file in files]
        _write_index(folder, partial)
        partial.rename(output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return [output / name for name in written]


def _convert(file: Path, folder: Path) -> str:
    from safetensors.torch import save_file

    name = _new_name(file.name)
    save_file(dict(_unshared(_tensors(file))), folder / name, metadata={"format": "pt"})
    return name


def _new_name(name: str) -> str:
    """`pytorch_model-00001-of-00002.bin` as transformers names it: `model-00001-of-00002.safetensors`."""
    return name.removeprefix("pytorch_").removesuffix(".bin") + ".safetensors"


def _tensors(file: Path) -> dict[str, Any]:
    import torch

    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except (UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{file}: is not opened, because it holds more than weights, or is damaged ({reason}).") from None
    if not isinstance(found, dict) or not found:
        raise CheckpointError(f"{file}: holds {type(found).__name__} and not weights by name. Ask its authors for safetensors.")
    if odd := [name for name, value in found.items() if not isinstance(value, torch.Tensor)]:
        raise CheckpointError(f"{file}: '{odd[0]}' is not a tensor, so this is not a model's weights. Ask its authors for safetensors.")
    return found


def _unshared(tensors: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tensors that share no memory, as safetensors requires: tied weights are written twice, with the same values."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        yield name, (tensor.clone() if place in seen else tensor).contiguous()
        seen.add(place)


def _write_index(folder: Path, output: Path) -> None:
    """Write the index that maps weights to files, for weights in several files."""
    if (folder / _INDEX).exists():
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        index["weight_map"] = {name: _new_name(file) for name, file in index["weight_map"].items()}
        (output / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
