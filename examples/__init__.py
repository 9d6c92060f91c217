"""The example pipeline: what `make demo` and `make ui` run."""
