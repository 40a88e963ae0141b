"""The user's own package, with the name of one of ours."""

NAME = "the user's models"
