"""Datasets as Dagster assets, on real instances and real data."""
