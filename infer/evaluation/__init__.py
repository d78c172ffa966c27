"""Scores of finished runs: metrics, judges, comparisons and the papers' tables."""
