"""Sentence patterns and tables of our own, and how labelled questions are made of them without any model."""
