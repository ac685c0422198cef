"""Scores to statistics, ranking and tables."""
