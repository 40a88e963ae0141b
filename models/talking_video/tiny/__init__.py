"""Small made-up weights for every class of the talking video, so that all of its code runs anywhere."""
