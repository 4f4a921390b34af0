"""Cases that a person decides, kept and read back: decisions outrank models."""
