"""Findings in, a string out: one function for each format."""
