"""The lakehouse catalog: SQL tables, transactions, snapshots, retention."""
