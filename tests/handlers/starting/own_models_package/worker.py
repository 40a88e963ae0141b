"""The user's own module, with the name of one of ours."""

NAME = "the user's worker"
