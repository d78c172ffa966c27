"""Corpora: where passages come from, and how millions of them are stored."""
