"""The lakehouse: catalogs in three databases."""
