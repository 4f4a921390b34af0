"""Which questions equal or nearly equal others, and what follows for each."""
