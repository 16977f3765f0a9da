"""Honest answers to requests outside the repertoire."""

from random import Random

from . import words as w
from .phrase import PLEASE, Talk, ask, sentence, single

SORRY = (
    "I am a tiny demo model and do not know that. Pull a real model, for example "
    "`localspec pull qwen3-8b`. I can do small sums, lists, rewriting, small Python functions and JSON."
)
TOO_BIG = (
    "That sum is too large for me: I learned numbers up to 99 and times tables up to 12. Pull a real model, "
    "for example `localspec pull qwen3-8b`."
)
NO_CODE = (
    "I do not know that program: I only learned a small set of Python functions, such as `is_prime`, "
    "`factorial` or `reverse_text`. Pull a real model, for example `localspec pull qwen3-8b`."
)
NO_LIST = (
    "I do not know a list about that. I know lists of colours, fruits, animals, planets, days and a few "
    "more. Pull a real model, for example `localspec pull qwen3-8b`."
)

_TOPICS = """the French Revolution;black holes;the moon landing;quantum physics;the stock market;inflation;
photosynthesis;the Roman Empire;jazz music;climate change;the human heart;gravity;electric cars;World War II;
the Great Wall;volcanoes;dinosaurs;the pyramids;Shakespeare;Einstein;Mozart;Napoleon;Cleopatra;the internet;
vaccines;DNA;bitcoin;football;the Olympic Games;chess openings;yoga;sushi;the brain;taxes;insurance;the law;
evolution;atoms;the ocean;earthquakes;democracy;philosophy;Buddhism;the economy;solar power;nuclear energy;
the Beatles;Picasso;robots;neural networks;Linux;Kubernetes;blockchain;the speed of light;penicillin;
my headache;my boss;love;the meaning of life;happiness;the weather;the news;the election;the president;
the lottery;my future;aliens;time travel;dreams;ghosts;the universe;medieval castles;steam engines""".replace(
    "\n", ""
).split(";")

_GENERAL = [
    "[who won|who lost|who hosted|who got|what was] the [world cup|election|race|final|Oscar|Nobel prize|championship|"
    "tennis open|war|first prize|boat race] [in|of] {year}?",
    "[explain|describe|tell me|what is|prove] the [theory|law|history|rule|theorem|principle|secret|paradox] of {noun}s[| to me| for me].",
    "[who|what|where|when|why|how] [is|was|does|did|do|can|will|has] [the|a|my|your|our] {adj} {noun} [live|go|come from|work|do|happen|cost|mean|end]?",
    "[i feel|i am|my {noun} is|my {noun2} feels] [sad|bored|angry|lonely|{adj}|tired|sick|in love|broken].",
    "[let's|can we|i want to] [talk about {topic}|play a game|play {topic}|discuss {topic}|learn about {topic}].",
    "[who|when|how|why] [invented|discovered|wrote|built|made|found] {topic}?",
    "[explain|describe|summarise|tell me about|tell me something about|what do you know about] {topic}.",
    "[what is|what are|what about] {topic}?",
    "[why|how|when|where] [is|was|are|were|did|does] {topic} [important|start|end|work|happen|begin]?",
    "[what is|what's] the [capital|population|language|president|currency|flag|king|area] of {country}?",
    "[who is|who was] {name} {surname}?",
    "[what is|what's] the [weather|temperature|time|news] [in {city}|today|now|tomorrow|in {city} today]?",
    "[how far|how long|how many hours] is it from {city} to {city2}?",
    '[translate|say] "{noun}" [to|into|in] [French|German|Spanish|Italian|Latin|Chinese|Russian].',
    "[how do you say|what is] {noun} in [French|German|Spanish|Japanese]?",
    "[write|compose|make|give me] [a poem|a song|a story|an essay|a joke|a novel|a speech|a haiku|a rap] "
    "[about {topic}|about a {noun}|for {name}|about {noun}s and {noun2}s].",
    "[tell me|give me] [a joke|a story|a riddle|a secret|the news|a fairy tale|something funny|an anecdote].",
    "[what is the|what's the] [meaning of life|best {noun}|cheapest {noun}|largest {noun}|oldest {noun} in {city}|fastest {noun}]?",
    "[should I|can I|may I] [buy|sell|eat|take|move to|invest in] [{topic}|a {noun}|{city}]?",
    "[how do I|how can I|how to] [cook|repair|build|clean|grow|draw|paint|buy|sell|fix] [a|my|the] {noun}?",
    "[how old|how tall|how rich|how famous] [is|was] [{name} {surname}|the {noun} of {city}|the king of {country}]?",
    "[when was|where was|why was] {name} {surname} [born|famous|elected]?",
    "[what happened|who won|who lost] in [1066|1492|1789|1914|1945|1969|1989|2001|2012] in {country}?",
    "[which|what] [film|book|song|game|restaurant|museum|hotel|phone|laptop] [do you recommend|should I choose|is the best] in {city}?",
    "[recommend|suggest] [a film|a book|a restaurant in {city}|a hotel in {city}|a song|a gift for {name}].",
    "[what do you think|what is your opinion] [of|about|on] {topic}?",
    "[do you like|do you believe in|do you love|have you seen|can you see] {topic}?",
    "[why is|why are] [the sky blue|the grass green|the sea salty|the {noun} {adj}|{noun}s {adj}]?",
    "[what does] {noun} [mean|taste like|look like|cost in {city}]?",
    "[how many] [people live|{noun}s are there|cars are there|museums are there] in [{city}|{country}]?",
    "[draw|show me|paint|send me] [a picture|an image|a photo|a map] of [a {noun}|{city}|{topic}].",
    "[book|order|buy] [a flight to {city}|a table in {city}|a {noun} for me|a pizza].",
    "[is it true that|is it possible that] {noun}s [can fly|can swim|eat {noun2}s|are {adj}]?",
    "[compare|what is the difference between] [{city} and {city2}|a {noun} and a {noun2}|{topic} and {noun}s].",
    "[plan|prepare|organise] [a trip to {city}|a party for {name}|my week|a wedding|a menu].",
    "[who painted|who wrote|who directed|who sang] [the {adj} {noun}|the {noun} of {city}|{name} and the {noun}]?",
    "[can you|could you] [sing|dance|see me|feel|think|dream|cook|drive|remember everything|browse the web]?",
]


def _code_negative(rng: Random) -> tuple[str, str]:
    template = rng.choice(
        (
            PLEASE
            + "[write|make|create|build|program|code] [a|me a|] [web server|website|game of {noun}|chess engine|"
            "compiler|database|neural network|chat bot|web scraper|calculator app|phone app|search engine|"
            "spam filter|text editor|tic tac toe game|snake game|login page|todo app|weather app|parser for {noun}s]"
            "[ in Python| in Rust| in C| in Java| in JavaScript|].",
            PLEASE
            + "[write|give me] [a function|code|a program|a script] [in Rust|in C++|in Java|in Go|in Haskell|in SQL|"
            "in JavaScript|in Bash] that [sorts a list|adds two numbers|prints {noun}|reads a file].",
            PLEASE
            + "[write|make] a [Python |]function [that|which] [solves sudoku|plays chess|downloads {noun}s|"
            "sends an email|reads a PDF|draws a {noun}|connects to a database|detects {noun}s in a picture|"
            "translates {noun}s|predicts the price of {noun}s|encrypts a file|resizes an image|parses HTML|"
            "trains a neural network|plays music|talks to a {noun}|multiplies two matrices|finds the shortest path].",
        )
    )
    return template, NO_CODE


def unknown(rng: Random) -> Talk:
    slots = {
        "topic": rng.choice(_TOPICS),
        "country": rng.choice(w.COUNTRIES),
        "city": rng.choice(w.CITIES),
        "city2": rng.choice(w.CITIES),
        "name": rng.choice(w.NAMES),
        "surname": rng.choice(w.SURNAMES),
        "noun": rng.choice(w.NOUNS),
        "noun2": rng.choice(w.NOUNS),
        "adj": rng.choice(w.ADJECTIVES),
        "year": str(rng.randint(1900, 2024)),
    }
    roll = rng.random()
    if roll < 0.06:
        # A bare statement asks for nothing that the model could do.
        return single(sentence(rng), SORRY)
    if roll < 0.70:
        lead = rng.choice(
            ("", "", "", "hey, ", "please, ", "can you tell me: ", "I wonder, ", "ok, ")
        )
        return single(ask(rng, lead + rng.choice(_GENERAL), **slots), SORRY)
    if roll < 0.80:
        big = str(rng.randint(200, 99999))
        other = str(rng.choice((rng.randint(13, 99), rng.randint(100, 9999))))
        pair = (big, other) if rng.random() < 0.6 else (other, big)
        template = rng.choice(
            (
                "[what is|calculate|compute|what's||how much is] {a} [+|-|*|x|/|times|plus|minus|divided by] {b}?",
                "[what is|compute|calculate] the [square root|cube root|logarithm|square] of {a}?",
                "[add|multiply] {a} [and|by|with] {b}.",
            )
        )
        return single(ask(rng, template, a=pair[0], b=pair[1]), TOO_BIG)
    if roll < 0.89:
        template, answer = _code_negative(rng)
        return single(ask(rng, template, **slots), answer)
    template = PLEASE + (
        "[list|name|give me|tell me] [{n} |some |a few |the best |the ten largest |all ]"
        "[Roman emperors|French kings|presidents|operas|poets|philosophers|programming books|rivers of {country}|"
        "lakes in {country}|films with {name} {surname}|restaurants in {city}|songs by {name} {surname}|battles|"
        "novels|actors|universities|companies|banks|car makers|airlines|mountains in {country}|saints|viruses|"
        "enzymes|painters from {country}|footballers|Nobel prize winners|stars|galaxies|gods|stock tips|"
        "drugs|laws|hotels in {city}|churches in {city}|wars of {country}|dances from {country}|{adj} films]."
    )
    slots["n"] = rng.choice(("three", "five", "ten", "3", "5", "7"))
    return single(ask(rng, template, **slots), NO_LIST)
