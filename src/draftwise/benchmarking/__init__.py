"""Decoding speeds measured beside plain decoding: runs, their record, figures with intervals, a report."""
