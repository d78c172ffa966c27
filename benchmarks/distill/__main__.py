"""Run `python -m benchmarks.distill [--json] [--peers NAME=PYTHON,...]`; run.py and comparison.py explain each figure."""

import sys
from collections.abc import Sequence

from benchmarks.command import bench_parser, print_figures
from benchmarks.distill.comparison import compare
from benchmarks.distill.run import measure


def main(argv: Sequence[str] | None = None) -> int:
    """Measure labeling by itself, or compare it with its peers. Returns the exit code."""
    parser = bench_parser("distill", "Measure labeling against a mock endpoint, alone or beside its peers.")
    parser.add_argument(
        "--peers",
        metavar="NAME=PYTHON,...",
        help="measure beside curator, datatrove and a floor: the Python of each one's virtual environment, or a folder with one "
        "environment per name; `floor` alone needs none (benchmarks/README.md)",
    )
    parser.add_argument("--rows", type=int, default=2048, help="with --peers: rows of each measurement (default: 2048)")
    parser.add_argument("--repeats", type=int, default=3, help="with --peers: the median of so many is printed (default: 3)")
    arguments = parser.parse_args(argv)
    if min(arguments.rows, arguments.repeats) < 1:
        parser.error(f"--rows {arguments.rows} --repeats {arguments.repeats}: both must be at least 1")
    if arguments.peers is None:
        return print_figures(measure, on_one_line=arguments.json)
    return print_figures(lambda: compare(arguments.peers, rows=arguments.rows, repeats=arguments.repeats), on_one_line=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
