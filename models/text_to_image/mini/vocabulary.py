"""The vocabulary of `flux-mini`, as data: objects, colours, counts, positions, sizes and backgrounds.

Scenes for training, captions, the reading of prompts and the scores all use these names. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Drawable:
    """An object: its name for one and for several, the icon of Material Design Icons that shows it, and the
    colours that it mostly has, for prompts which name none."""

    name: str
    plural: str
    icon: str
    colours: tuple[str, ...]


def _drawables(table: str) -> tuple[Drawable, ...]:
    rows = (line.split() for line in table.strip().splitlines())
    return tuple(Drawable(name, plural, icon, tuple(colours)) for name, plural, icon, *colours in rows)


DRAWABLES: Final = _drawables(
    """
    cat         cats         cat                 orange gray black white brown
    dog         dogs         dog-side            brown black white gray
    fish        fishes       fish                orange blue red cyan
    bird        birds        bird                blue red yellow
    rabbit      rabbits      rabbit              white gray brown
    turtle      turtles      tortoise            green
    elephant    elephants    elephant            gray
    penguin     penguins     penguin             black blue
    butterfly   butterflies  butterfly           orange purple blue pink yellow
    horse       horses       horse               brown black white
    cow         cows         cow                 brown black white
    pig         pigs         pig                 pink
    sheep       sheeps       sheep               white gray
    duck        ducks        duck                yellow
    owl         owls         owl                 brown gray
    snail       snails       snail               brown orange
    spider      spiders      spider              black
    dolphin     dolphins     dolphin             blue gray cyan
    snake       snakes       snake               green
    kangaroo    kangaroos    kangaroo            brown orange
    mouse       mice         rodent              gray brown
    bat         bats         bat                 black purple
    ladybug     ladybugs     ladybug             red
    unicorn     unicorns     unicorn             pink purple white
    tree        trees        tree                green
    palm        palms        palm-tree           green
    flower      flowers      flower              red pink purple yellow orange
    tulip       tulips       flower-tulip        red pink yellow
    mushroom    mushrooms    mushroom            red brown
    cactus      cacti        cactus              green
    leaf        leaves       leaf                green orange
    apple       apples       food-apple          red green
    cherry      cherries     fruit-cherries      red
    pear        pears        fruit-pear          green yellow
    pineapple   pineapples   fruit-pineapple     yellow
    carrot      carrots      carrot              orange
    cake        cakes        cake                pink brown
    pizza       pizzas       pizza               orange yellow
    cup         cups         coffee              white blue red
    car         cars         car-side            red blue yellow black
    bus         buses        bus-side            red yellow blue
    truck       trucks       truck               blue red
    tractor     tractors     tractor             red green
    train       trains       train               blue red
    plane       planes       airplane            white blue gray
    boat        boats        sail-boat           white blue red
    rocket      rockets      rocket              red white gray
    bicycle     bicycles     bicycle             red blue
    balloon     balloons     airballoon          red yellow purple
    house       houses       home                red brown yellow
    castle      castles      castle              gray brown
    church      churches     church              white gray
    lighthouse  lighthouses  lighthouse          red white
    umbrella    umbrellas    umbrella            red purple blue
    key         keys         key                 yellow gray
    bell        bells        bell                yellow
    lamp        lamps        lamp                yellow
    guitar      guitars      guitar-acoustic     brown orange red
    star        stars        star                yellow
    heart       hearts       heart               red pink
    crown       crowns       crown               yellow
    robot       robots       robot               gray blue
    ghost       ghosts       ghost               white
    clock       clocks       clock               blue black
    """
)

BY_NAME: Final = {drawable.name: drawable for drawable in DRAWABLES}

COLOURS: Final = {
    "red": (219, 38, 41),
    "orange": (244, 130, 22),
    "yellow": (250, 208, 35),
    "green": (46, 155, 62),
    "cyan": (28, 190, 200),
    "blue": (37, 90, 220),
    "purple": (130, 60, 190),
    "pink": (246, 120, 178),
    "brown": (128, 78, 42),
    "black": (33, 33, 38),
    "gray": (130, 134, 140),
    "white": (248, 248, 246),
}
"""Each colour in sRGB."""

COUNTS: Final = ("one", "two", "three", "four")
POSITIONS: Final = ("left", "right", "top", "bottom")
SIZES: Final = ("small", "big")

SCENERY: Final = {
    "meadow": "in a meadow",
    "beach": "on a beach",
    "night": "at night",
    "snow": "in the snow",
    "desert": "in the desert",
    "sunset": "at sunset",
    "sea": "in the sea",
}
"""Backgrounds other than a colour, with the words of a caption."""

FILLERS: Final = (
    *("a", "the", "and", "on", "in", "at", "side", "background", ","),
    *("above", "below", "with"),
)
"""The other words that the network reads."""

WORDS: Final = tuple(
    dict.fromkeys(
        [
            *FILLERS,
            *COUNTS,
            *POSITIONS,
            *SIZES,
            *COLOURS,
            *SCENERY,
            *(drawable.name for drawable in DRAWABLES),
            *(drawable.plural for drawable in DRAWABLES),
        ]
    )
)
"""Everything that the network reads, in the order of its tokens."""
