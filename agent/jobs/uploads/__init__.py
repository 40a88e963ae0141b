"""Uploads to an object store: payloads, output files, and the requests that control signs."""
