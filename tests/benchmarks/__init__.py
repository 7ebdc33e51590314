"""Figures: each script measures pairs in one run and prints medians and ratios as JSON."""
