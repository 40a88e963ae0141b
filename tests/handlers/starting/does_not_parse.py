"""Is not Python."""

def handler(job)
    return None
