"""Where bytes live: file systems, listing, footers, and the journal that publishes changes."""
