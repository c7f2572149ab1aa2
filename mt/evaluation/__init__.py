"""Scores with their signatures, reports, comparisons and plots."""
