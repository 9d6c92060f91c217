"""Kills, concurrent readers and concurrent writers, with real processes."""
