"""Frozen values that flow through every room: files, groups, plans, stats."""
