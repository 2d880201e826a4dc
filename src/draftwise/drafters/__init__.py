"""Drafters: each file is one way to guess."""
