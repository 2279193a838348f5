"""Converts a sealed segment to Parquet plus index, and back."""
