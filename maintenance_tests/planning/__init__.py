"""Tests of the pure planning modules."""
