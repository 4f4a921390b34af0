"""`headrace bench NAME`: measurements as ratios within one run, one JSON line each."""
