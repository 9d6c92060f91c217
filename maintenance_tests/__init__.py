"""Tests of maintenance_assets."""
