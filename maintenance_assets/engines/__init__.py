"""What carries a plan out. Engines write what they are told, where they are told."""
