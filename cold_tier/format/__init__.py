"""Sealed segment to Parquet plus index, and back."""
