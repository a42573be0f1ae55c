"""From data of any size to a stored graph, with bounded memory; see `convert`."""

from gtjax.datasets.conversion.convert import ConvertOptions, convert

__all__ = ["ConvertOptions", "convert"]
