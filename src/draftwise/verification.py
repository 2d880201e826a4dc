"""Exact acceptance rules."""
