"""The project's documents, all in Markdown."""

from pathlib import Path

PROJECT = Path(__file__).parents[2]
# Their commands work after the demo.
GUIDES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
OTHERS = [PROJECT / name for name in ("AGENTS.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/README.md", "accelerate_configs/README.md")]
DOCUMENTS = [*GUIDES, *OTHERS, *sorted((PROJECT / "recipes").glob("*/README.md"))]
