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
    "meadow": "grass field garden park forest lawn countryside hill hills valley",
    "beach": "sand shore coast seaside",
    "night": "midnight nighttime space",
    "snow": "winter ice snowy arctic storm stormy blizzard rain rainy fog",
    "desert": "dune dunes sahara",
    "sunset": "sunrise dusk dawn evening",
    "sea": "ocean water underwater lake river pond puddle waves",
    "bicycle": "bike motorcycle motorbike scooter",
    "bird": "eagle parrot sparrow crow dove chicken hen rooster",
    "boat": "ship sailboat yacht",
    "bus": "tram coach",
    "butterfly": "moth bee insect",
    "cake": "bread cookie cupcake muffin donut",
    "car": "automobile auto taxi",
    "castle": "palace fortress",
    "cat": "kitty kitten lion tiger leopard",
    "cherry": "strawberry berry raspberry grape",
    "clock": "watch time",
    "cow": "bull calf cattle",
    "crown": "tiara queen king prince princess",
    "cup": "mug coffee tea teapot bottle glass bowl",
    "dog": "puppy wolf fox bear",
    "dolphin": "whale orca",
    "duck": "duckling goose swan",
    "elephant": "rhino rhinoceros hippo mammoth",
    "fish": "shark goldfish",
    "flower": "blossom daisy pansy rose",
    "ghost": "spirit phantom",
    "guitar": "violin viola piano music",
    "heart": "love",
    "horse": "pony zebra donkey deer",
    "house": "home hut cottage cabin building skyscraper city village",
    "lamp": "light lantern",
    "leaf": "foliage fern moss ivy",
    "mouse": "rat hamster squirrel",
    "pear": "banana lemon",
    "pizza": "burger hamburger sandwich",
    "plane": "airplane aeroplane aircraft jet",
    "rabbit": "bunny hare",
    "robot": "android man woman person people girl boy child astronaut",
    "rocket": "spaceship spacecraft",
    "sheep": "lamb goat",
    "snake": "dragon dinosaur lizard crocodile",
    "spider": "ant crab",
    "star": "moon sun planet",
    "train": "locomotive railway",
    "tree": "oak pine",
    "truck": "lorry van wagon",
    "turtle": "tortoise frog toad",
}
"""For each known word the words that are read as it."""

_LOOSELY: Final[dict[str, str]] = {
    "apple": "tomato pumpkin fruit",
    "balloon": "ball football party",
    "bell": "drum trumpet",
    "bicycle": "wheel",
    "butterfly": "fairy fly",
    "cake": "birthday chocolate dessert",
    "car": "road street traffic",
    "carrot": "vegetable corn",
    "castle": "mountain pyramid statue fountain bridge",
    "clock": "year month week hour minute day morning",
    "crown": "hat helmet knight ring necklace jewel diamond treasure gold money",
    "cup": "wine milk beer juice drink",
    "flower": "spring",
    "dog": "animal",
    "ghost": "snowman angel devil soul witch zombie vampire monster skeleton halloween",
    "heart": "wedding kiss valentine friendship",
    "guitar": "instrument",
    "house": "town door window room tent barn family roof hospital hotel",
    "kangaroo": "monkey ape gorilla",
    "key": "sword knife fork spoon tool",
    "ladybug": "beetle bug",
    "lamp": "candle fire flame torch electricity",
    "leaf": "plant salad nature",
    "mushroom": "jellyfish",
    "palm": "island summer vacation",
    "pear": "potato onion",
    "pizza": "food dinner lunch meal cheese restaurant",
    "rabbit": "easter",
    "robot": (
        "computer machine phone television camera technology soldier worker face head baby guy police guest"
        " guard secretary device"
    ),
    "rocket": "missile cannon",
    "snail": "caterpillar",
    "spider": "octopus squid insect",
    "star": "sky world earth",
    "tractor": "farm",
    "tree": "christmas wood jungle",
    "truck": "tank",
    "lighthouse": "windmill tower harbour harbor",
}
"""The same for words that only stand for something where a prompt names nothing that is nearer."""

LOOSE: Final = {word: known for known, some in _LOOSELY.items() for word in some.split()}

_NOTHING = """
    anode bar bastard bed bench bullet chair christ clothes coat corona couch desk dress female furniture game
    gun holder holmes jacket leg liberal memory pistol prize rifle shirt shoe shot slave sofa steel step stool
    table uniform weapon
"""
NOTHING: Final = frozenset(_NOTHING.split())
"""Nouns that the table of nouns reads as something that does not look like them at all."""

SYNONYMS: Final = {word: known for known, some in MEANT.items() for word in some.split()}

_SILENT = """
    against are as be by center centre drawing for from he her him his i icon illustration image is
    it its middle my painting photo photograph picture she that them there they this to us we you
    your
"""
SILENT: Final = frozenset(_SILENT.split())
"""What captions have no word for, and what changes nothing that is drawn."""
