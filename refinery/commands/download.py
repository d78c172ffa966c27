"""`refinery download ADDRESS --output PATH`."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from refinery.errors import RecipeError
from refinery.runtime.forecast import Expected, Forecast

GROUP = "Pipeline"
HELP = "download a dataset or a corpus, whole or out of an archive; what is there is kept, and what was stopped is continued"

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("address", metavar="ADDRESS", help="an http or https address")
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="the file to write, or with --members the folder")
    parser.add_argument(
        "--members", nargs="+", default=[], metavar="NAME", help="files to take out of a zip or tar archive; PATH=NAME renames one"
    )
    parser.add_argument("--sha256", metavar="HEX", help="refuse a file with another checksum")
    parser.add_argument("--size", metavar="SIZE", help="what it takes on disk, such as 45M or 13G, for the plan of `refinery run`")
    parser.add_argument("--rows", type=int, nargs="+", metavar="N", help="how many rows it has, or each member, for that plan")


def run(arguments: argparse.Namespace) -> None:
    """Download, and say what is there."""
    from refinery.downloading import download

    if not arguments.address.startswith(("http://", "https://")):
        raise RecipeError(f"{arguments.address}: an address must start with http:// or https://")
    new = download(arguments.address, arguments.output, members=arguments.members, sha256=arguments.sha256)
    print(f"{arguments.output}: {'downloaded' if new else 'is there already'}")


def forecast(words: Sequence[str], expected: Expected) -> Forecast:
    """The disk of a download whose `--size` is given, and the `--rows` that it will have."""
    from refinery.downloading import member_name

    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    arguments = parser.parse_args(list(words))
    files = [arguments.output / member_name(member) for member in arguments.members] or [arguments.output]
    counts: list[int] = arguments.rows or []
    if len(counts) not in (0, 1, len(files)):
        raise RecipeError(f"--rows: {len(counts)} numbers for {len(files)} files. Give one for each.")
    writes = {} if not counts else dict(zip(files, counts, strict=True)) if len(counts) > 1 else dict.fromkeys(files, counts[0])
    rows = sum(counts) if counts else None
    size = None if arguments.size is None else _bytes(arguments.size)
    return Forecast(rows, writes, disk_bytes=None if size is None else (size, size))


def _bytes(size: str) -> float:
    found = re.fullmatch(r"([\d.]+)([KMG]?)", size)
    if found is None:
        raise RecipeError(f"--size {size}: is not a size. Write 45M or 13G.")
    return float(found[1]) * _UNITS[found[2]]
