"""EgoAVU: narrations, context graphs and questions of egocentric video (arXiv 2602.06139)."""
