"""talk-mini: makes the caller's picture speak on a CPU, by moving its lips, jaw and eyelids"""
