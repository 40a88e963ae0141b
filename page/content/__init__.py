"""The content of pages: forms, outputs with their pictures and films, code, times and words."""
