"""Pure planning: from what is there to what will be done, without I/O."""
