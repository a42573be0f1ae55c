"""What every layer may import, and which imports none of ours: errors, files, cache, progress."""
