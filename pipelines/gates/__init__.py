"""Gates: what an artifact must satisfy before anything downstream may read it."""
