"""Measured figures of the package, each case in a fresh process."""
