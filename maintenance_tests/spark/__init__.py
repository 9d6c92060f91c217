"""Spark beyond the conformance suite: Java, sessions, clusters, Connect, secrets."""
