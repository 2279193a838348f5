"""Sealed segments to the cold tier, in the one safe order; retention and garbage."""
