"""The live endpoints of `stoker dev`: which there are, and which must be created, updated or removed."""
