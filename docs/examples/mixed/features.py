"""What model and API share. It is shipped with both, since both import it."""


def numbers(text: str) -> list[float]:
    """Numbers that describe a text."""
    words = text.split()
    return [float(len(words)), float(len(text)), float(sum(word.istitle() for word in words))]
