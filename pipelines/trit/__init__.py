"""TRIT: translation and reasoning that train each other (arXiv 2602.05940)."""
