"""The public functions under the names users know, thin over operations."""
