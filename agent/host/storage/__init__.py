"""Folders on this node's disk that outlive a worker: network volumes, and how a folder is removed."""
