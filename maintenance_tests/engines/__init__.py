"""What is special about single engines."""
