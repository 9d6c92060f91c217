"""Whole operations: discover, plan, execute, commit, report."""
