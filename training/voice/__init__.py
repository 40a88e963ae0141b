"""The fitting of the weights by which talk-mini tells a voice from other sounds."""
