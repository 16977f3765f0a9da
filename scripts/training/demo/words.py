"""Word lists from which the corpus builds its sentences, and words that are in no list."""

from random import Random

NAMES = """Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Noah Olivia Paul Quinn
Rosa Sam Tina Umar Vera Will Xenia Yusuf Zoe Alice Bob Carlos Diana Erik Fatima George Hana Ivan
Julia Karl Lena Marco Nina Oscar Priya Ravi Sofia Tom Ursula Victor Wendy Yara Adam Bella Chen Dora
Elena Frank Gina Hugo Irene Jonas Kim Liam Mia Nora Otto Petra Ruth Simon Tara Uma Vince Walter Amir
Britta Cyril Dana Eva Fiona Greta Hans Ines Joel Kira Lukas Mona Nils Omar Pia Rita Stefan Theo
Lucy Mark Peter John Mary Sarah James Linda Susan Laura Kevin Brian Julie Steve Alex Max Ella
Sven Aisha Bruno Celia Dmitri Edith Farid Gwen Hector Isla Jorge Keiko Luca Mei Nadia Olga""".split()

SURNAMES = """Smith Berg Costa Dunn Evans Fischer Garcia Hill Ito Jones Keller Lopez Meyer Novak Olsen
Park Quist Rossi Stone Taylor Usman Vogel West Young Ziegler Adler Brown Clark Diaz Ford Green Hansen
Jensen Khan Lang Moore Nash Owen Price Reed Silva Turner Wood Baker Cole Davis Fox Gray Hughes King
Lee Martin Patel Ross Scott Walsh Weber Wolf""".split()

CITIES = """Oslo Paris Berlin Madrid Rome Vienna Prague Lisbon Dublin London Athens Warsaw Helsinki
Stockholm Zurich Geneva Milan Turin Porto Lyon Hamburg Munich Bergen Leeds York Bath Cairo Tokyo Kyoto
Delhi Mumbai Lagos Nairobi Lima Quito Bogota Toronto Boston Chicago Denver Seattle Austin Dallas Sydney
Perth Seoul Hanoi Manila Dakar Tunis Malmo Ghent Basel Krakow Riga Tallinn""".split()

COUNTRIES = """Norway France Germany Spain Italy Austria Portugal Ireland Greece Poland Finland Sweden
Switzerland Egypt Japan India Nigeria Kenya Peru Canada Brazil Mexico Chile Denmark Iceland""".split()

NOUNS = """dog cat bird horse fish fox owl bear rabbit mouse tree flower garden river lake mountain road
bridge house door window table chair lamp clock book letter picture box bag basket bottle cup plate
spoon knife boat train car bike bus plane shop market school office kitchen station library museum
hotel farm field forest beach island cloud star moon sun stone rock hill tower wall roof stairs
computer phone screen keyboard camera radio song story poem game ball kite drum guitar piano violin
teacher doctor farmer driver baker painter singer writer student child friend neighbour king queen
sailor pilot nurse cook guest apple bread cheese cake soup coffee tea coat hat shoe scarf glove
blanket pillow candle mirror ladder hammer rope key coin map ticket package parcel umbrella""".split()

ADJECTIVES = """red blue green yellow black white grey brown old new small big little large long short
tall quiet loud happy sad bright dark warm cold clean dirty heavy light soft hard slow fast young
kind brave clever calm empty full broken shiny round square narrow wide deep strange famous lazy busy
gentle proud hungry tired golden silver wooden ancient modern simple fresh sweet""".split()

THINGS = """apples oranges pears plums lemons books pens pencils cups plates chairs tables tickets
cards coins stamps eggs cakes cookies flowers candles shirts shoes hats balls toys boxes bottles
bags stones shells marbles keys letters maps""".split()

# base form, third person, past tense, what may follow
VERBS = [
    tuple(line.split("/"))
    for line in """walk/walks/walked/to the {place}
drive/drives/drove/to the {place}
run/runs/ran/to the {place}
go/goes/went/to the {place}
ride/rides/rode/to the {place}
return/returns/returned/to the {place}
travel/travels/travelled/to {city}
move/moves/moved/to {city}
live/lives/lived/in {city}
work/works/worked/in {city}
stay/stays/stayed/in {city}
arrive/arrives/arrived/in {city}
buy/buys/bought/a {adj} {noun}
sell/sells/sold/a {adj} {noun}
find/finds/found/a {adj} {noun}
see/sees/saw/a {adj} {noun}
paint/paints/painted/a {adj} {noun}
draw/draws/drew/a {adj} {noun}
carry/carries/carried/a {adj} {noun}
bring/brings/brought/a {adj} {noun}
lose/loses/lost/a {adj} {noun}
need/needs/needed/a {adj} {noun}
want/wants/wanted/a {adj} {noun}
own/owns/owned/a {adj} {noun}
make/makes/made/a {adj} {noun}
like/likes/liked/the {adj} {noun}
love/loves/loved/the {adj} {noun}
watch/watches/watched/the {adj} {noun}
open/opens/opened/the {adj} {noun}
close/closes/closed/the {adj} {noun}
clean/cleans/cleaned/the {adj} {noun}
move/moves/moved/the {adj} {noun}
take/takes/took/the {adj} {noun}
keep/keeps/kept/the {adj} {noun}
fix/fixes/fixed/the {adj} {noun}
use/uses/used/the {adj} {noun}
wash/washes/washed/the {adj} {noun}
cook/cooks/cooked/{food} for {name}
eat/eats/ate/{food} with {name}
drink/drinks/drank/tea with {name}
play/plays/played/chess with {name}
sing/sings/sang/a song for {name}
write/writes/wrote/a letter to {name}
read/reads/read/a book to {name}
send/sends/sent/a parcel to {name}
give/gives/gave/a {noun} to {name}
show/shows/showed/a {noun} to {name}
call/calls/called/{name} at noon
meet/meets/met/{name} at the {place}
help/helps/helped/{name} at the {place}
visit/visits/visited/{name} in {city}
wait/waits/waited/for {name} at the {place}
talk/talks/talked/to {name} about the {noun}
think/thinks/thought/about the {adj} {noun}
look/looks/looked/at the {adj} {noun}
sit/sits/sat/near the {adj} {noun}
stand/stands/stood/near the {adj} {noun}
sleep/sleeps/slept/under the {adj} {noun}
teach/teaches/taught/music in {city}
study/studies/studied/history in {city}""".splitlines()
]

PLACES = """park market station library museum school office beach harbour airport theatre bakery garden
hospital castle church village river forest gym cafe pool farm zoo""".split()
FOODS = (
    """pasta rice soup bread fish salad pizza stew curry noodles pancakes beans potatoes""".split()
)
MONTHS = """January February March April May June July August September October November
December""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
DOMAINS = "example.com example.org mail.example post.example office.example".split()
JOBS = """teacher doctor baker painter nurse pilot farmer writer singer driver engineer lawyer cook
gardener dentist student""".split()
HOBBIES = "chess tennis painting running cooking reading hiking music dancing fishing".split()
COLOURS = "red blue green yellow orange purple pink brown black white grey".split()
NUMBER_WORDS = """zero one two three four five six seven eight nine ten eleven twelve""".split()


# How often a word is invented, so that copying cannot lean on knowing all words.
INVENTED = 0.5
_ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sl sn sp st str t th tr v w y z".split()
_VOWELS = "a e i o u ai ea ee ie oo ou y".split()
_ENDS = "- - - - b ck d ff g l ll m n nd ng nt p r rd rk rn s sh ss st t th x".replace(
    "-", ""
).split(" ")
_WHOLE = [
    *NAMES,
    *SURNAMES,
    *CITIES,
    *COUNTRIES,
    *NOUNS,
    *ADJECTIVES,
    *THINGS,
    *PLACES,
    *JOBS,
    *HOBBIES,
]


_read: list[str] = []


def learn(words: list[str]) -> None:
    """Words found in real text join the invented ones."""
    _read[:] = [word.lower() for word in words if word.isalpha() and 2 < len(word) < 13]


def invented(rng: Random) -> str:
    """A word from no list: one that was read somewhere, halves of two words, or syllables."""
    if _read and rng.random() < 0.4:
        return rng.choice(_read)
    if rng.random() < 0.55:
        first, second = (word.lower() for word in rng.sample(_WHOLE, 2))
        return first[: rng.randint(2, len(first))] + second[rng.randint(1, len(second) - 1) :]
    return "".join(
        rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_ENDS)
        for _ in range(rng.choice((1, 2, 2, 3)))
    )


def some(rng: Random, pool: list[str]) -> str:
    """A word of the list, or an invented one of the same shape."""
    if rng.random() >= INVENTED:
        return rng.choice(pool)
    word = invented(rng)
    return word.capitalize() if pool[0][0].isupper() else word


def several(rng: Random, pool: list[str], count: int) -> list[str]:
    """Different words of that kind."""
    found: dict[str, None] = {}
    while len(found) < count:
        found.setdefault(some(rng, pool))
    return list(found)
