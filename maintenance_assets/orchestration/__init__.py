"""The Dagster side: the only room that imports dagster."""
