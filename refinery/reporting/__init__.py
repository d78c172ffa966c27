"""How results are shown: tables, figures, Markdown and pages."""
