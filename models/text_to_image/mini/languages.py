"""Prompts in French, German, Spanish and Italian: their words for what `flux-mini` draws, in English. Pure.

    "un chat bleu" ──> "a", "blue", "cat"

A prompt is in another language if that language has more of its words than English has, and one of them
cannot be English: "bar" is not read as a bear, but "ein bar" is, and "bär".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from stoker.models.text_to_image.mini.vocabulary import BY_NAME, COLOURS, DRAWABLES, SIZES

_TABLES: Final[dict[str, str]] = {
    "French": """
        a:un,une,le,la,les,l,du,des and:et on:sur in:dans,en at:a,au,aux with:avec above:dessus
        below:sous,dessous
        two:deux three:trois four:quatre,cinq,six small:petit,petite,petits,petites
        big:grand,grande,gros,grosse
        left:gauche right:droite top:haut bottom:bas background:fond side:cote
        red:rouge,rouges orange:orange yellow:jaune,jaunes green:vert,verte,verts,vertes cyan:turquoise
        blue:bleu,bleue,bleus,bleues purple:violet,violette pink:rose,roses brown:brun,brune,marron
        black:noir,noire,noirs,noires gray:gris,grise white:blanc,blanche,blancs,blanches
        meadow:pre,prairie,herbe,champ beach:plage night:nuit snow:neige,tempete desert:desert
        sunset:crepuscule,coucher sea:mer,ocean,eau
        cat:chat,chatte,chaton dog:chien,renard,loup,ours fish:poisson bird:oiseau rabbit:lapin turtle:tortue
        elephant:elephant penguin:pingouin,manchot butterfly:papillon horse:cheval cow:vache pig:cochon
        sheep:mouton duck:canard owl:hibou,chouette snail:escargot spider:araignee dolphin:dauphin,baleine
        snake:serpent kangaroo:kangourou mouse:souris bat:chauve ladybug:coccinelle unicorn:licorne tree:arbre
        palm:palmier flower:fleur tulip:tulipe mushroom:champignon cactus:cactus leaf:feuille,fougere
        apple:pomme
        cherry:cerise pear:poire pineapple:ananas carrot:carotte cake:gateau pizza:pizza cup:tasse car:voiture
        bus:bus,autobus truck:camion tractor:tracteur train:train plane:avion boat:bateau,voilier,navire
        rocket:fusee bicycle:velo,bicyclette balloon:ballon house:maison castle:chateau church:eglise
        lighthouse:phare umbrella:parapluie key:cle,clef bell:cloche lamp:lampe guitar:guitare star:etoile
        heart:coeur crown:couronne,reine,roi robot:robot ghost:fantome clock:horloge,montre
    """,
    "German": """
        a:ein,eine,einen,einem,einer,der,die,das,dem,den and:und on:auf in:im at:am,bei,zum with:mit
        above:uber,ueber below:unter,unterm two:zwei three:drei four:vier,funf,sechs
        small:klein,kleine,kleiner,kleines,kleinen big:gross,grosse,grosser,grosses,grossen
        left:links,linke,linken
        right:rechts,rechte,rechten top:oben bottom:unten background:hintergrund,grund side:seite
        red:rot,rote,roter,rotes,roten,rotem yellow:gelb,gelbe,gelber,gelbes,gelben,gelbem
        green:grun,grune,gruner,grunes,grunen,grunem cyan:turkis blue:blau,blaue,blauer,blaues,blauen,blauem
        purple:lila,violett,violette pink:rosa brown:braun,braune,brauner,braunes,braunen
        black:schwarz,schwarze,schwarzer,schwarzes,schwarzen,schwarzem gray:grau,graue,grauer,graues,grauen
        white:weiss,weisse,weisser,weisses,weissen,weissem orange:orangefarben,orangene
        meadow:wiese,gras,feld beach:strand night:nacht,nachts snow:schnee,sturm,winter desert:wuste
        sunset:sonnenuntergang,abend sea:meer,see,wasser
        cat:katze,katzen,kater dog:hund,hunde,fuchs,wolf,bar fish:fisch,fische bird:vogel
        rabbit:hase,hasen,kaninchen turtle:schildkrote elephant:elefant,elefanten penguin:pinguin,pinguine
        butterfly:schmetterling,schmetterlinge horse:pferd,pferde cow:kuh,kuhe pig:schwein,schweine
        sheep:schaf,schafe duck:ente,enten owl:eule,eulen snail:schnecke,schnecken spider:spinne,spinnen
        dolphin:delfin,delphin,wal snake:schlange kangaroo:kanguru mouse:maus,mause bat:fledermaus
        ladybug:marienkafer unicorn:einhorn tree:baum,baume palm:palme,palmen flower:blume,blumen
        tulip:tulpe,tulpen
        mushroom:pilz,pilze cactus:kaktus leaf:blatt,blatter,farn apple:apfel cherry:kirsche,kirschen
        pear:birne,birnen pineapple:ananas carrot:karotte,mohre cake:kuchen,torte pizza:pizza cup:tasse,tassen
        car:auto,autos,wagen bus:bus truck:lastwagen,laster tractor:traktor train:zug,zuge
        plane:flugzeug,flugzeuge
        boat:boot,boote,schiff,segelboot rocket:rakete,raketen bicycle:fahrrad,rad balloon:ballon,ballons
        house:haus,hauser castle:burg,schloss church:kirche lighthouse:leuchtturm umbrella:regenschirm,schirm
        key:schlussel bell:glocke lamp:lampe guitar:gitarre star:stern,sterne heart:herz,herzen
        crown:krone,konigin,konig robot:roboter ghost:gespenst,geist clock:uhr
    """,
    "Spanish": """
        a:un,una,unos,unas,el,la,los,las,del and:y on:sobre,encima in:en at:al with:con below:bajo,debajo
        two:dos three:tres four:cuatro,cinco,seis small:pequeno,pequena,pequenos big:grande,grandes,gran
        left:izquierda right:derecha top:arriba bottom:abajo background:fondo side:lado
        red:rojo,roja,rojos,rojas orange:naranja yellow:amarillo,amarilla,amarillos,amarillas
        green:verde,verdes cyan:turquesa blue:azul,azules purple:morado,morada pink:rosa,rosado brown:marron
        black:negro,negra,negros,negras gray:gris,grises white:blanco,blanca,blancos,blancas
        meadow:prado,hierba,campo beach:playa night:noche snow:nieve,tormenta desert:desierto sunset:atardecer
        sea:mar,oceano,agua
        cat:gato,gata,gatito dog:perro,perra,zorro,lobo,oso fish:pez,pescado bird:pajaro rabbit:conejo
        turtle:tortuga elephant:elefante penguin:pinguino butterfly:mariposa horse:caballo cow:vaca pig:cerdo
        sheep:oveja duck:pato owl:buho snail:caracol spider:arana dolphin:delfin,ballena snake:serpiente
        kangaroo:canguro mouse:raton bat:murcielago ladybug:mariquita unicorn:unicornio tree:arbol
        palm:palmera
        flower:flor,flores tulip:tulipan mushroom:seta,hongo cactus:cactus leaf:hoja,helecho apple:manzana
        cherry:cereza
        pear:pera pineapple:pina carrot:zanahoria cake:pastel,tarta pizza:pizza cup:taza car:coche,carro
        bus:autobus truck:camion tractor:tractor train:tren plane:avion boat:barco,velero rocket:cohete
        bicycle:bicicleta balloon:globo house:casa castle:castillo church:iglesia lighthouse:faro
        umbrella:paraguas key:llave bell:campana lamp:lampara guitar:guitarra star:estrella heart:corazon
        crown:corona,reina,rey robot:robot ghost:fantasma clock:reloj
    """,
    "Italian": """
        a:un,uno,una,il,lo,la,i,gli,le and:e,ed on:su,sul,sulla in:nel,nella,nello at:al,alla and:di with:con
        below:sotto above:sopra two:due three:tre four:quattro,cinque,sei small:piccolo,piccola,piccoli
        big:grande,grandi left:sinistra right:destra top:alto bottom:basso background:sfondo
        red:rosso,rossa,rossi,rosse orange:arancione,arancioni yellow:giallo,gialla,gialli,gialle
        green:verde,verdi cyan:turchese blue:blu,azzurro,azzurra purple:viola pink:rosa brown:marrone
        black:nero,nera,neri,nere gray:grigio,grigia white:bianco,bianca,bianchi,bianche
        meadow:prato,erba,campo beach:spiaggia night:notte snow:neve,tempesta desert:deserto sunset:tramonto
        sea:mare,oceano,acqua
        cat:gatto,gatta,gatti dog:cane,cani,volpe,lupo,orso fish:pesce,pesci bird:uccello rabbit:coniglio
        turtle:tartaruga elephant:elefante penguin:pinguino,pinguini butterfly:farfalla,farfalle
        horse:cavallo,cavalli cow:mucca,mucche pig:maiale sheep:pecora,pecore duck:anatra owl:gufo
        snail:lumaca
        spider:ragno dolphin:delfino,balena snake:serpente kangaroo:canguro mouse:topo,topi bat:pipistrello
        ladybug:coccinella unicorn:unicorno tree:albero,alberi palm:palma flower:fiore,fiori tulip:tulipano
        mushroom:fungo,funghi cactus:cactus leaf:foglia,felce apple:mela,mele cherry:ciliegia pear:pera
        pineapple:ananas carrot:carota cake:torta pizza:pizza cup:tazza car:macchina,auto bus:autobus
        truck:camion tractor:trattore train:treno plane:aereo boat:barca,nave,barche rocket:razzo
        bicycle:bicicletta balloon:palloncino,palloncini house:casa castle:castello church:chiesa
        lighthouse:faro umbrella:ombrello key:chiave bell:campana lamp:lampada guitar:chitarra
        star:stella,stelle heart:cuore,cuori crown:corona,regina,re robot:robot ghost:fantasma clock:orologio
    """,
}
"""For each language what its words are in English: without accents, in the singular and, where that is not
the singular with an s, in the plural."""


_LOOKALIKES = """
    alto bar boot cane champ con corona den die due fond gauche gran gras gross links mar mare nave ours
    pastel piccolo pre rad re rot see sous stern strand viola
"""
LOOKALIKES: Final = frozenset(_LOOKALIKES.split())
"""English words that are written like a word of these languages, and mean something else. Not "chat", which
nobody asks a picture of in English."""


def _table(text: str) -> dict[str, str]:
    pairs = (entry.partition(":") for entry in text.split())
    return {word: known for known, _, words in pairs for word in words.split(",")}


_WORDS: Final = {language: _table(text) for language, text in _TABLES.items()}


def plain(text: str) -> str:
    """Returns the text in lower case, without accents."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))


def accented(text: str) -> frozenset[str]:
    """Returns the words of a text that are written with accents, without them."""
    words = re.findall(r"\w+", unicodedata.normalize("NFC", text))
    return frozenset(plain(word) for word in words if not word.isascii())


def in_english(
    words: Sequence[str], english: Collection[str], foreign: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Returns each word with what it is in English, in English order; unchanged if the text is in English.
    `english`: the words that are known there; `foreign`: those that are certainly none."""
    known = {*english, *LOOKALIKES}
    sure = {word for word in words if word in foreign or known.isdisjoint((word, _one(word)))}
    best = max(_WORDS.values(), key=lambda table: _share(words, table, sure))
    if _share(words, best, sure) <= sum(word in english for word in words if word != ","):
        return [(word, word) for word in words]
    return _reordered([(word, _translated(word, best)) for word in words])


def _share(words: Sequence[str], table: Mapping[str, str], sure: Collection[str]) -> int:
    """Returns how many of the words are in a table; none if none of those is sure to be no English word."""
    found = [word for word in words if word in table or _one(word) in table]
    return len(found) if any(word in sure for word in found) else 0


def _one(word: str) -> str:
    """Returns the singular of a word whose plural has an s."""
    return word if word.endswith("ss") else word.removesuffix("s")


def _translated(word: str, table: Mapping[str, str]) -> str:
    if word in table:
        return table[word]
    one = table.get(_one(word), word)
    return BY_NAME[one].plural if one in BY_NAME else one


def _reordered(words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Moves colours and sizes before the object that they follow."""
    objects = {name for one in DRAWABLES for name in (one.name, one.plural)}
    found = list[tuple[str, str]]()
    for word in words:
        at = len(found)
        while at and found[at - 1][1] in (*COLOURS, *SIZES):
            at -= 1
        follows = word[1] in (*COLOURS, *SIZES) and at and found[at - 1][1] in (*objects, "background")
        found.insert(at - 1 if follows else len(found), word)
    return found
