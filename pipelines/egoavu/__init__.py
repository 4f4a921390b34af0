"""EgoAVU: narrations, context graphs and questions from annotated egocentric video (arXiv 2602.06139)."""
