"""P(evergreen) of a question: the parts of the classifier that stands for EG-E5 (paper, section 4)."""
