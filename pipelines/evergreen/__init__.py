"""EverGreenQA: questions labelled by whether their answer changes (arXiv 2505.21115)."""
