"""Folders in object stores: `s3://`, `gs://` and whatever else fsspec knows; see README.md."""
