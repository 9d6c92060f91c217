"""What every engine must do alike, on every store."""
