"""The name pools of the embedded world: every entity's name is two or three words drawn from these."""

from itertools import product


def _blend(starts: str, ends: str) -> tuple[str, ...]:
    return tuple(start + end for start, end in product(starts.split(), ends.split()))


FIRST_NAMES = _blend("Al Bren Cor Dal El Fen Gar Hal Is Jor Kel Mar Nor Per Sel Tor", "a an en ia in is o or")
LAST_NAMES = _blend("Bar Cal Dro Fal Gri Hol Kra Lor Mul Nes Pol Ros Sta Tan Ver Wil", "by der ford kin low man ner sen ston well")
PLACE_NAMES = _blend("Ash Brim Cold Dun Ester Fair Glen Hart Kings Long Mill Oak Pine Red", "bury den field ham ley mere ton wick")
PLACE_KINDS = ("Bay", "Bridge", "Falls", "Ford", "Gate", "Hill", "Port", "Springs")
COUNTRIES = _blend("Ara Belo Casta Dori Eska Fara Gali Hesto Ilo Jura Kora Lumi Mora Nava Osta Pala", "land mark nia via stan dor")
ADJECTIVES = tuple(
    "Ancient Bitter Blue Bright Broken Burning Clever Crooked Crystal Dark Distant Divided Dusty Early Empty Endless Eternal Fading Fallen "
    "Final Forgotten Fragile Frozen Gentle Golden Green Hidden Hollow Holy Humble Idle Iron Last Little Lonely Lost Lucky Marble Midnight "
    "Narrow Nameless Northern Pale Paper Perfect Quiet Rising Royal Sacred Scarlet Second Secret Shallow Silent Silver Sleeping Southern "
    "Stolen Summer Velvet Violet Wandering White Wild Winter Wooden Young".split()
)
NOUNS = tuple(
    "Anchor Arrow Ballad Banquet Beacon Bell Candle Carnival Castle Cathedral Chapel Circus Compass Corridor Crown Dancer Daughter Desert "
    "Diary Dragon Echo Empire Engine Feather Fountain Garden Ghost Harbor Harvest Horizon Hunter Island Journey Kingdom Ladder "
    "Lantern Letter Lighthouse Machine Meadow Mirror Mountain Ocean Orchard Palace Parade Pilgrim Portrait Promise Prophet "
    "Raven River Road Sailor Season Shadow Shepherd Station Stranger Theatre Thunder Tower Train Valley Village Voyage Widow "
    "Window Winner".split()
)
OCCUPATIONS = ("film director", "writer")
GENRES = ("comedy", "drama", "musical", "thriller", "western")
YEARS = tuple(range(1880, 2020))
