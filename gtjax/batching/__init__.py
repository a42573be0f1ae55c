"""What one step sees of a graph: prepare, lay out, place, store; `table.py` has the ways."""
