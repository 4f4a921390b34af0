"""One module a format: what its columns are, and what a record of it says.

Law: a module knows its own format and no other; all meet in `seam.py`.
"""
