"""From a strategy to devices: the mesh, host arrays placed on it, and attention bound to it."""
