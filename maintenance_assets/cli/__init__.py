"""The command line `parquet-maintenance`: the same operations from a shell."""
