"""An S3 server on the loopback address, and what goes wrong on the way to it."""
