"""Other words for what `flux-mini` draws, as people write them in prompts; for nouns beyond these there is
the table that `training.nearest` makes. Pure data."""

from __future__ import annotations

from typing import Final

MEANT: Final[dict[str, str]] = {
    "red": "crimson scarlet ruby maroon",
    "orange": "amber tangerine copper",
    "yellow": "gold golden lemon blond",
    "green": "emerald lime olive",
    "cyan": "turquoise teal aqua",
    "blue": "navy azure cobalt indigo",
    "purple": "violet lilac lavender mauve",
    "pink": "magenta fuchsia",
    "brown": "tan chestnut beige bronze wooden",
    "gray": "grey silver",
    "black": "ebony dark",
    "white": "ivory pale",
    "a": "an",
    "and": "of",
    "one": "1 single lone",
    "two": "2 couple pair both",
    "three": "3 few several some",
    "four": "4 5 6 7 8 9 10 five six seven eight nine ten many dozen",
    "left": "leftmost",
    "right": "rightmost",
    "top": "upper upwards",
    "bottom": "lower downwards",
    "above": "over atop",
    "below": "under beneath underneath",
    "small": "tiny little mini miniature",
    "big": "large huge giant enormous great",
    "meadow": "grass field garden park forest lawn countryside",
    "beach": "sand shore coast seaside",
    "night": "midnight nighttime space",
    "snow": "winter ice snowy arctic storm stormy blizzard rain rainy fog",
    "desert": "dune dunes sahara",
    "sunset": "sunrise dusk dawn evening",
    "sea": "ocean water underwater lake",
    "bicycle": "bike motorcycle motorbike scooter",
    "bird": "eagle parrot sparrow crow dove",
    "boat": "ship sailboat yacht",
    "bus": "tram coach",
    "butterfly": "moth bee insect",
    "cake": "bread cookie cupcake muffin donut",
    "car": "automobile auto taxi",
    "castle": "palace tower fortress",
    "cat": "kitty kitten lion tiger leopard",
    "cherry": "strawberry berry raspberry grape",
    "clock": "watch time",
    "cow": "bull calf",
    "crown": "hat helmet tiara",
    "cup": "mug coffee tea teapot bottle glass bowl",
    "dog": "puppy wolf fox bear",
    "dolphin": "whale orca",
    "duck": "duckling goose swan",
    "elephant": "rhino rhinoceros hippo mammoth",
    "fish": "shark goldfish",
    "flower": "blossom daisy rose",
    "ghost": "spirit phantom",
    "guitar": "violin piano music",
    "heart": "love",
    "horse": "pony zebra donkey deer",
    "house": "home hut cottage cabin building skyscraper city village",
    "lamp": "light lantern",
    "leaf": "foliage",
    "mouse": "rat hamster squirrel",
    "pear": "banana lemon",
    "pizza": "burger hamburger sandwich",
    "plane": "airplane aeroplane aircraft jet",
    "rabbit": "bunny hare",
    "robot": "android man woman person people girl boy child astronaut king queen",
    "rocket": "spaceship spacecraft",
    "sheep": "lamb goat",
    "snake": "dragon dinosaur lizard crocodile",
    "spider": "ant crab",
    "star": "moon sun planet",
    "train": "locomotive railway",
    "tree": "oak pine",
    "truck": "lorry van",
    "turtle": "tortoise frog toad",
}
"""For each known word the words that are read as it."""

SYNONYMS: Final = {word: known for known, some in MEANT.items() for word in some.split()}

_SILENT = """
    against are as be by center centre drawing for from he her him his i icon illustration image is
    it its middle my painting photo photograph picture she that them there they this to us we you
    your
"""
SILENT: Final = frozenset(_SILENT.split())
"""What captions have no word for, and what changes nothing that is drawn."""
