"""Run `python -m benchmarks.retrieval [--json] [--sizes N ...]`; retrieve.py explains each figure."""

import sys
from collections.abc import Sequence

from benchmarks.command import bench_parser, print_figures
from benchmarks.retrieval.retrieve import measure


def main(argv: Sequence[str] | None = None) -> int:
    """Measure our BM25 beside bm25s. Returns the exit code."""
    parser = bench_parser("retrieval", "Measure our BM25 beside bm25s.")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000], metavar="N", help="corpora of so many passages (default: 10000 100000)"
    )
    arguments = parser.parse_args(argv)
    if min(arguments.sizes) < 1:
        parser.error("--sizes must be at least 1")
    return print_figures(lambda: measure(arguments.sizes), on_one_line=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
