"""The report of a run: one HTML file that tells its story, to open anywhere or to mail."""
