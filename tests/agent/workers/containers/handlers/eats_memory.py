"""Takes memory until there is none."""


def handler(job):
    kept = []
    while True:
        kept.append(bytearray(b"x" * (16 << 20)))
