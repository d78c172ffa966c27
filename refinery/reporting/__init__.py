"""The presentation of results: tables, figures, Markdown and pages."""
