"""Rows that are labeled, and what is known about them before."""
