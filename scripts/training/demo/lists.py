"""Short lists of closed topics, always in the same order, so that they stay correct."""

from random import Random

from .phrase import PLEASE, Talk, ask, single
from .words import NUMBER_WORDS

_RAW = """fruits|fruit:apple,banana,orange,pear,cherry,grape,lemon,peach,plum,mango,strawberry,melon
vegetables|vegetable:carrot,potato,tomato,onion,cabbage,pea,spinach,pepper,cucumber,broccoli,leek,pumpkin
colours|colors:red,blue,green,yellow,orange,purple,black,white,brown,pink,grey,turquoise
animals|animal:dog,cat,horse,cow,sheep,elephant,lion,rabbit,mouse,bear,wolf,giraffe
birds|kinds of birds:sparrow,robin,eagle,owl,swan,duck,parrot,pigeon,crow,stork,gull,finch
fish|kinds of fish:salmon,trout,tuna,carp,cod,herring,shark,eel,pike,perch,sardine,bass
insects|bugs:ant,bee,butterfly,beetle,fly,wasp,moth,cricket,mosquito,dragonfly,grasshopper,ladybird
trees|kinds of trees:oak,birch,pine,maple,willow,beech,fir,elm,ash,cedar,poplar,chestnut
flowers|kinds of flowers:rose,tulip,daisy,lily,sunflower,violet,poppy,orchid,iris,daffodil,carnation,lavender
planets|planets of the solar system:Mercury,Venus,Earth,Mars,Jupiter,Saturn,Uranus,Neptune
days|days of the week:Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday
months|months of the year:January,February,March,April,May,June,July,August,September,October,November,December
seasons|seasons of the year:spring,summer,autumn,winter
continents|continents of the world:Africa,Antarctica,Asia,Australia,Europe,North America,South America
oceans|oceans of the world:Pacific Ocean,Atlantic Ocean,Indian Ocean,Southern Ocean,Arctic Ocean
countries|countries of the world:France,Germany,Italy,Spain,Japan,India,Brazil,Canada,Egypt,Kenya,Norway,Mexico
European countries|countries in Europe:France,Germany,Italy,Spain,Portugal,Norway,Sweden,Poland,Greece,Austria,Ireland,Denmark
cities|big cities:London,Paris,Berlin,Rome,Madrid,Tokyo,Cairo,Sydney,Toronto,Lima,Oslo,Vienna
capitals|capital cities:Paris,Berlin,Rome,Madrid,Lisbon,Vienna,Oslo,Stockholm,Warsaw,Athens,Cairo,Tokyo
rivers|famous rivers:Nile,Amazon,Danube,Rhine,Thames,Seine,Volga,Ganges,Mississippi,Congo,Elbe,Tiber
mountains|famous mountains:Mount Everest,K2,Mont Blanc,Matterhorn,Kilimanjaro,Denali,Mount Fuji,Aconcagua,Mount Olympus,Ben Nevis
languages|human languages:English,Spanish,French,German,Italian,Portuguese,Chinese,Japanese,Arabic,Hindi,Russian,Swedish
programming languages|coding languages:Python,C,Java,Rust,Go,JavaScript,Ruby,Haskell,Swift,Kotlin,Perl,Lua
sports|kinds of sport:football,tennis,swimming,running,basketball,cycling,hockey,volleyball,skiing,rowing,golf,boxing
hobbies|pastimes:reading,painting,cooking,hiking,gardening,chess,photography,dancing,fishing,knitting,cycling,singing
musical instruments|instruments:piano,guitar,violin,drums,flute,trumpet,cello,harp,clarinet,saxophone,organ,trombone
drinks|things to drink:water,tea,coffee,milk,juice,lemonade,cocoa,soda,wine,beer,smoothie,cider
breakfast foods|things for breakfast:bread,cereal,eggs,yoghurt,porridge,pancakes,fruit,jam,cheese,toast
desserts|sweet dishes:ice cream,cake,pudding,pancakes,apple pie,cookies,chocolate mousse,fruit salad,waffles,custard
spices|kitchen spices:pepper,salt,cinnamon,paprika,ginger,curry,nutmeg,cumin,saffron,cloves,vanilla,chilli
pizza toppings|toppings for a pizza:tomatoes,cheese,mushrooms,olives,onions,peppers,ham,spinach,pineapple,basil
kitchen tools|things in a kitchen:knife,spoon,fork,pan,pot,bowl,plate,whisk,oven,kettle,grater,sieve
tools|hand tools:hammer,screwdriver,saw,pliers,drill,wrench,chisel,file,axe,spade,ruler,level
furniture|pieces of furniture:table,chair,sofa,bed,desk,shelf,wardrobe,cupboard,stool,bench,lamp,drawer
clothes|pieces of clothing:shirt,trousers,dress,coat,hat,scarf,gloves,socks,shoes,jacket,skirt,belt
rooms|rooms of a house:kitchen,bathroom,bedroom,living room,dining room,hall,cellar,attic,study,pantry
jobs|professions:teacher,doctor,baker,nurse,farmer,pilot,cook,engineer,painter,driver,lawyer,gardener
vehicles|means of transport:car,bicycle,bus,train,plane,boat,tram,ship,motorbike,truck,scooter,helicopter
school subjects|subjects at school:mathematics,history,geography,biology,chemistry,physics,music,art,English,sport
metals|kinds of metal:iron,gold,silver,copper,lead,tin,zinc,nickel,aluminium,titanium,platinum,mercury
chemical elements|elements:hydrogen,helium,lithium,carbon,nitrogen,oxygen,sodium,iron,copper,silver,gold,lead
shapes|geometric shapes:circle,square,triangle,rectangle,pentagon,hexagon,oval,diamond,star,cube,sphere,cone
body parts|parts of the body:head,arm,leg,hand,foot,eye,ear,nose,mouth,knee,elbow,shoulder
feelings|emotions:joy,sadness,anger,fear,surprise,love,pride,hope,envy,shame,trust,boredom
board games|games to play:chess,checkers,backgammon,go,dominoes,ludo,cards,dice,memory,darts
pets|animals to keep at home:dog,cat,hamster,rabbit,goldfish,parrot,turtle,guinea pig,canary,mouse
Python types|data types in Python:int,float,str,list,dict,tuple,set,bool,bytes,complex
Python keywords|keywords of Python:if,else,for,while,def,class,return,import,try,with,lambda,yield
prime numbers|primes:2,3,5,7,11,13,17,19,23,29,31,37
even numbers|numbers that are even:2,4,6,8,10,12,14,16,18,20,22,24
odd numbers|numbers that are odd:1,3,5,7,9,11,13,15,17,19,21,23
square numbers|squares:1,4,9,16,25,36,49,64,81,100,121,144
names for a cat|cat names:Luna,Milo,Oscar,Simba,Coco,Felix,Ginger,Shadow,Tiger,Minka
names for a dog|dog names:Bella,Max,Rocky,Buddy,Daisy,Charlie,Rex,Bruno,Lucky,Molly
weather words|kinds of weather:sun,rain,snow,wind,fog,hail,storm,thunder,frost,drizzle"""

TOPICS: dict[str, tuple[str, list[str]]] = {}
for _line in _RAW.splitlines():
    _head, _items = _line.split(":")
    _name, _other = _head.split("|")
    TOPICS[_name] = (_other, _items.split(","))

TIPS = {
    "sleeping better|better sleep|how to sleep well": "Go to bed at the same time every day.|Keep the bedroom dark and cool."
    "|Do not drink coffee in the evening.|Put the phone away an hour before bed.|Take a walk during the day.",
    "learning to program|learning programming|learning Python|how to learn coding": "Write a little code every day.|Start with small "
    "programs that you can finish.|Read the error message before you change anything.|Read code by other people."
    "|Explain your program to a friend.",
    "saving money|how to save money|spending less": "Write down what you spend.|Make a list before you go shopping.|Cook at home."
    "|Wait a day before you buy something large.|Put some money aside every month.",
    "staying healthy|a healthy life|how to stay healthy": "Drink enough water.|Eat vegetables every day.|Move for half an hour a day."
    "|Sleep long enough.|Spend time with friends.",
    "a good presentation|giving a talk|how to give a good talk": "Know the one thing that you want to say.|Use few words on every "
    "slide.|Practise aloud with a clock.|Look at the people, not at the screen.|Stop a minute early.",
    "studying for an exam|learning for a test|exam preparation": "Start early and make a plan.|Study in short blocks with breaks."
    "|Test yourself instead of only reading.|Explain the topic in your own words.|Sleep well the night before.",
    "writing a good email|writing emails|better emails": "Write a clear subject line.|Say what you want in the first sentence."
    "|Keep it short.|Ask one question at a time.|Read it once more before you send it.",
    "working from home|home office|how to work from home": "Start at a fixed time.|Keep a place that is only for work.|Take real "
    "breaks.|Talk to your colleagues every day.|Close the laptop in the evening.",
    "keeping plants alive|looking after plants|house plants": "Put them near a window.|Water them only when the soil is dry."
    "|Use a pot with a hole.|Wipe the dust from the leaves.|Give them new soil every two years.",
    "packing for a trip|travelling|how to pack a suitcase": "Write a list the day before.|Roll the clothes instead of folding them."
    "|Keep your papers in one place.|Take a charger for your phone.|Leave some space for the way back.",
    "making friends|meeting new people|how to find friends": "Say hello first.|Ask questions and listen.|Join a club or a class."
    "|Remember names.|Invite somebody for a coffee.",
    "a clean kitchen|keeping the kitchen clean|tidying up": "Wash the dishes after every meal.|Wipe the table at once.|Take out the "
    "rubbish every evening.|Keep only what you use.|Clean one drawer a week.",
    "readable code|writing clean code|good code": "Give things clear names.|Keep functions short.|Write a test for every bug."
    "|Delete code that nobody uses.|Let a comment say why, not what.",
    "running a language model|using a local model|running models at home": "Choose a model that fits into your memory."
    "|Use a quantized file.|Add a matching draft model.|Close other large programs.|Measure the speed with `localspec bench`.",
}


def topic_of(rng: Random) -> tuple[str, str, list[str]]:
    """A topic: its name for answers, the wording of the request, its items."""
    name = rng.choice(list(TOPICS))
    other, items = TOPICS[name]
    asked = name if rng.random() < 0.75 else other
    if name == "colours" and rng.random() < 0.3:
        asked = "colors"
    return name, asked, items


def render(items: list[str], *, numbered: bool) -> str:
    return "\n".join(f"{i}. {x}" if numbered else f"- {x}" for i, x in enumerate(items, 1))


def list_answer(name: str, items: list[str], count: int, *, numbered: bool) -> str:
    shown = render(items[:count], numbered=numbered)
    if count > len(items):
        return f"Here are the {NUMBER_WORDS[len(items)]} {name} that I know:\n\n{shown}"
    return f"Here are {NUMBER_WORDS[count]} {name}:\n\n{shown}"


def lists(rng: Random) -> Talk:
    if rng.random() < 0.18:
        return tips(rng)
    name, asked, items = topic_of(rng)
    style = rng.random()
    if style < 0.55:
        count = rng.randint(2, 12)
        shown = str(count) if rng.random() < 0.5 else NUMBER_WORDS[count]
        text = (
            PLEASE
            + "[list|name|give me|tell me|write|write down|show me|make a list of|give me a list of|i need|"
            "write a list of|list me|name any|i would like|i'd like|i want to see|tell me about] {n} "
            "[|different |||]{topic}[||| in a list| you know]."
        )
        request = ask(rng, text, n=shown, topic=asked)
    elif style < 0.85:
        count = 5
        text = (
            (
                "["
                + PLEASE[1:-1]
                + "][list|name|give me|tell me|write down|show me|make a list of|give me a list of|write a list of] "
                "[some |a few |]{topic}[|||, please]."
            )
            if rng.random() < 0.7
            else (
                "[what are some|can you name some|tell me which|what|which|do you know any|do you know some|a list of|examples of|what are examples of|give examples of] "
                "{topic}[| do you know|]?"
            )
        )
        request = ask(rng, text, topic=asked)
        if name in ("planets", "days", "months", "seasons", "continents", "oceans"):
            count = len(items)
    else:
        count = (
            len(items)
            if name in ("planets", "days", "months", "seasons", "continents", "oceans")
            else 5
        )
        if count == 5 and name != "oceans":
            # A bare topic is a request as well.
            request = ask(rng, "{topic}[| please| list|, a list]", topic=asked)
        else:
            text = rng.choice(
                (
                    "[what are|list|name|tell me|which are|give me|can you list|do you know|say] [the|all the|all|] {topic}?",
                    "[tell me|can you tell me|do you know|i want to know|say] [which|what] {topic} there are.",
                    "[which|what] {topic} [are there|exist|do we have|do you know]?",
                    "[what are|how are] the {topic} called?",
                )
            )
            request = ask(rng, text, topic=asked)
    numbered = rng.random() < 0.25
    if numbered:
        request += rng.choice(
            (
                " as a numbered list",
                ", numbered",
                ". Number them.",
                " in a numbered list",
                " (numbered)",
            )
        )
    return single(request, list_answer(name, items, count, numbered=numbered))


def tips(rng: Random) -> Talk:
    key = rng.choice(list(TIPS))
    topics, lines = key.split("|"), TIPS[key].split("|")
    asked = rng.choice(topics)
    count = rng.choice((3, 4, 5, 5, 5))
    shown = rng.choice((str(count), NUMBER_WORDS[count]))
    if asked.startswith("how to"):
        text = "[tell me|explain|show me|give me advice on|] {topic}[|.|?]"
        count = 5
    elif count == 5 and rng.random() < 0.5:
        text = (
            PLEASE
            + "[give me|list|tell me|write|do you have] [some |a few |any |][tips|advice|ideas|hints] [for|on|about] {topic}."
        )
    else:
        text = (
            PLEASE
            + "[give me|list|tell me|write] {n} [tips|ideas|hints|good tips] [for|on|about] {topic}."
        )
    request = ask(rng, text, n=shown, topic=asked)
    return single(
        request,
        f"Here are {NUMBER_WORDS[count]} tips for {topics[0]}:\n\n{render(lines[:count], numbered=True)}",
    )
