"""Greetings, small talk, and questions about localspec and about the model itself."""

from random import Random

from .commands import COMMANDS
from .phrase import Talk, ask, single, tell

# Each entry: what people say, what is answered. Brackets hold alternatives.
INTENTS: list[tuple[str, str, float]] = [
    (
        "[hello|hi|hey|hi there|hello there|hey there|good morning|good evening|good afternoon|yo|howdy|"
        "greetings|hiya|good to see you|nice to meet you|pleased to meet you|glad to meet you|hi, nice to see you|good day|hello!|hi!|hey!|morning|hello hello|hi hi|hello [little|small|tiny|dear|good] [model|bot|machine|one|friend]|good morning [to you|everyone|all|localspec]|hi [localspec|demo|model|my friend]|hello friend|hi bot|"
        "hello computer|hey you|hello world|hi, anyone there?|hello, are you there?|anybody home?]"
        "[||||.|!|, nice to meet you| :)|, how do you do?]",
        "Hello! I am the demo model of localspec. I can do small sums, make lists, repeat or rewrite a "
        "text, write small Python functions and format JSON. What shall we try?",
        3.0,
    ),
    (
        "[hello|hi|hey|good morning||||][,|] [how are you|how are you doing|how is it going|how's it going|"
        "how do you feel|how are you today|are you well|how are things|what's up|whats up|"
        "how's your day|everything ok|are you ok|all good][ today||]?",
        "I am well, thank you! I am small, but I am quick. What shall we try: a sum, a list, or a small "
        "Python function?",
        1.5,
    ),
    (
        "[[and |so |so, |ok, ]who [exactly |really |]are you|introduce yourself[ to me| to us| to my friends| to the class| to everyone| briefly]|what [may|can|do|should] [we|I|people|others|they] call you|are you [a real|an actual|a|really a] [person|human|man|woman|living being|human being]|who are you|what are you|tell me about yourself|introduce yourself|who am i talking to|"
        "what's your name|what is your name|who is this|what model is this|what model are you|"
        "which model are you|do you have a name|describe yourself|are you an ai|are you a robot|"
        "are you a bot|who is there|what kind of model are you|say something about yourself|"
        "please introduce yourself|and who are you|who are you really|what should i call you|"
        "what is this model|can you tell me who you are|so what are you exactly|are you a person|are you human]?",
        "I am the demo model of localspec: a tiny language model that travels inside the package. I was "
        "trained on a laptop-sized processor to show that everything works without a download. I know "
        "very little, but I answer at once.",
        2.5,
    ),
    (
        "[what is localspec|what's localspec|whats localspec|tell me about localspec|explain localspec|"
        "what does localspec do|localspec?|describe localspec|what is this program|what is this|"
        "what is this tool|what is localspec for|why should i use localspec|what is localspec good for|"
        "can you explain localspec|what exactly is localspec|i don't know localspec, what is it|"
        "what's this thing|give me an introduction to localspec|what does this program do|what does this tool do|"
        "summarise localspec|localspec in a few words|why does localspec exist|what's the point of localspec]"
        "[ to me| please|||, please| in short]?",
        "localspec makes a quantized language model on your own laptop answer two to three times faster "
        "without changing what it says. A small draft model proposes the next tokens and the large target "
        "model checks them all in one pass. The text is exactly what the target alone would have written. "
        "It is built on llama.cpp in Python and runs offline.",
        3.0,
    ),
    (
        "[what [sort|kind|kinds|sorts] of [things|tasks|jobs|questions|work] [can you do|are you good at|do you do|can you handle]|what [can|could] you do [for me|for us|for people]|what are you able to [do|write|answer]|which [things|tasks] can you do|what can you do|what can i ask you|help|help me|what do you know|what are you good at|"
        "what can i do here|how can you help me|how can you help|what are your skills|what should i ask|"
        "what can you do for me|show me what you can do|give me some ideas|what are you able to do|"
        "what kind of things can you do|what tasks can you do|what questions can you answer|"
        "what do you do|what else can you do|how do i use you|what are your abilities|"
        "tell me what you can do|what works|any suggestions what to ask|what can i try|"
        "can you help me|i need help|what are you useful for|list your skills|what are your limits]?",
        "I can do these things:\n\n- greet you and tell you about localspec\n- add, subtract and multiply "
        "small numbers\n- make short lists, such as five fruits or the planets\n- repeat or rewrite a text "
        "that you give me\n- find a name, a date or an email address in a text\n- write small Python "
        "functions\n- format data as JSON\n\nFor anything else pull a real model, for example "
        "`localspec pull qwen3-8b`.",
        3.0,
    ),
    (
        "[how does speculative decoding work|what is speculative decoding|explain speculative decoding|"
        "how does localspec work|how does it work|speculative decoding?|tell me about speculative decoding|"
        "how does this work|what is the trick|how can it be faster|how do you get faster|why is it faster|"
        "what makes it fast|how does the speed up work|how is it so fast|why is localspec fast|"
        "how does localspec make it faster|what is speculation|describe speculative decoding|"
        "can you explain how speculative decoding works|why are you so fast|how are you so fast|"
        "how does localspec speed things up|where does the speed come from|explain how localspec works]"
        "[ to me||| in simple words| please]?",
        "Speculative decoding uses two models. A small draft model quickly proposes the next few tokens. "
        "The large target model then checks all of them in a single pass, which costs little more than "
        "writing one token. Tokens that agree are kept; at the first miss the target puts its own token "
        "instead. So the text is the target's own, only sooner.",
        3.0,
    ),
    (
        "[how [do|can|could|should] [I|we|one] [check|test|verify|prove|see|know] that it is [really |]exact|can [I|we|one] [check|test|verify|prove] that it is exact[ here| on this computer| on my machine]|do [I|we] get [a different|another|the same] [answer|text|output] [with|because of|from] [a draft|the draft|drafting|speculation]|is the [answer|text|output] [different|changed|worse] [with|because of] [a draft|the draft|the draft model]|is it exact|will the text be different|is the answer different with a draft|do i get other answers with a draft|will the draft model change what it says|is the answer still the same|is the output the same|does it change the answer|does it change the output|is it lossless|"
        "does speculation change the text|is the quality worse|do i lose quality|does the draft change the answer|"
        "is the text identical|are the answers the same|is it really exact|will the answers be worse|"
        "does the quality suffer|is the result the same as without a draft|does localspec change what the model says|"
        "is speculative decoding exact|is speculative decoding lossless|is localspec exact|do the answers get worse|"
        "is there a loss in quality|can i trust that the output is the same|how exact is it]?",
        "Yes, it is exact: the output is what the target alone would have said. The draft only proposes, and "
        "the target decides about every token. At temperature 0 the text is the same token for token, and "
        "with sampling the probabilities are the same. You can test it on your machine with "
        "`localspec verify`.",
        2.0,
    ),
    (
        "[what do the colours mean|what do the colors mean|why are the words coloured|why is the text colored|"
        "what are the colours|explain the colours|explain the colors|what does the colour of a token mean|"
        "why do some words have another colour|what is the colour code|why is some text in a different color|"
        "what do the different colours show|why are some tokens coloured|meaning of the colours|"
        "what does a coloured token mean|what are the coloured words]?",
        "The colour of a token shows its origin. Accepted tokens were proposed by the draft and kept by the "
        "target. A corrected token is the target's own choice at the first miss. A bonus token comes free "
        "when the whole draft was accepted. Plain tokens were written without a draft.",
        2.0,
    ),
    (
        "[what is a draft model|what is the draft|what does the draft do|what's a draft model|"
        "what is a drafter|explain the draft model|what does the draft model do|why is there a second model|"
        "why two models|what is the small model for|why do you need a draft model|what is the draft for|"
        "what's the role of the draft|why does it need two models|draft model?]?",
        "The draft model is a small and fast model with the same vocabulary as the target. It proposes the "
        "next few tokens, and the target checks them. A good draft agrees with the target often, so several "
        "tokens are kept in every round. It never decides what is written.",
        2.0,
    ),
    (
        "[what is a target model|what is the target|what does the target do|what's the target model|"
        "explain the target model|which model decides|who decides what is written|what does the target model do|"
        "what is the large model for|which model writes the answer|target model?|what's the role of the target]?",
        "The target is the model whose answer you want. It checks the tokens that the draft proposes and "
        "decides about every one of them. Its output is what you read: the draft only saves time.",
        2.0,
    ),
    (
        "[what is acceptance|what does acceptance mean|what is the acceptance rate|what does accepted mean|"
        "explain acceptance|what is a good acceptance|what does the acceptance number mean|"
        "what's the acceptance|acceptance?|what is acceptance rate|what does acceptance tell me|"
        "what does a high acceptance mean]?",
        "Acceptance is the share of checked draft tokens that the target keeps. If the draft proposes four "
        "tokens and three are kept, the acceptance is 75 percent. The higher it is, the faster the text "
        "appears.",
        2.0,
    ),
    (
        "[what is a token|what are tokens|explain tokens|what does token mean|what's a token|token?|"
        "what is a token in a language model|what do you mean by token|how long is a token]?",
        "A token is a piece of text: a word, a part of a word, a digit or a sign. A language model reads and "
        "writes text token by token. In English a token is about four letters long.",
        1.0,
    ),
    (
        "[what commands are there|what can i do with localspec on the command line|which commands are available|name the commands of localspec|which commands are there|list the commands|what commands does localspec have|"
        "show me the commands|how do i use localspec|how do I use it|what can localspec do|localspec commands|"
        "which commands do you have|how can i use localspec|what are the localspec commands|give me the commands|"
        "what can i type|how do i get started|how do i start|getting started|what are the commands|"
        "tell me the commands|which commands exist|how does the command line work|what subcommands are there]?",
        'These are the commands:\n\n- `localspec chat` opens a chat\n- `localspec run "..."` gives one '
        "answer\n- `localspec pull NAME` fetches a model\n- `localspec models` lists the models\n- "
        "`localspec show NAME` describes a model\n- `localspec doctor` checks your machine\n- "
        "`localspec verify` tests that the output is exact\n- `localspec bench` measures the speed",
        2.5,
    ),
    (
        "[how do i get a real model|how do i download a model|how do i pull a model|how can i get a better model|"
        "how do i install a model|where do i get models|how do i use a bigger model|how can i use another model|"
        "how do i get a bigger model|how do i load a real model|can i use another model|download a model|"
        "how do i get qwen|how do i fetch a model|how can i download a larger model|where can i download better models|how to install a larger model|i want a smarter model|"
        "how do i change the model|how do i switch to another model|can i get a better model|which model should i pull]?",
        "Pull one by its name, for example `localspec pull qwen3-8b`. It is downloaded once, together with a "
        "matching draft, and then works offline. Start it with `localspec chat qwen3-8b`. The names are "
        "listed by `localspec models`.",
        2.5,
    ),
    (
        "[what does {cmd} do|what is {cmd}|explain {cmd}|what is {cmd} for|tell me about {cmd}|"
        "what does the {cmd} command do|when do i need {cmd}|how do i use {cmd}|what happens with {cmd}]?",
        "",
        4.0,
    ),
    (
        "[how fast are you|how fast is it|how much faster is it|how much faster is localspec|what is the speed up|"
        "how fast is localspec|is it really faster|how much time do i save|how big is the speed up|what speed can i expect|"
        "how many tokens per second|how do i measure the speed|how can i measure the speed|how do i test the speed|"
        "is it faster than plain decoding]?",
        "With a real pair localspec is typically two to three times faster than plain decoding. How much you "
        "gain depends on the text and on your machine. Measure it with `localspec bench`: it runs both ways "
        "side by side. If drafting would be slower, localspec turns it off by itself.",
        2.0,
    ),
    (
        "[do you need the internet|does it work offline|are you offline|does localspec need the internet|"
        "do i need an internet connection|can i use it without internet|is my data sent somewhere|"
        "does it send my data|is it private|is this private|who can read what i type|do you work offline|"
        "does localspec work offline|where does the model run|where do you run|are you in the cloud|is it local|"
        "does my text leave this computer|is my data safe|do you send data to a server]?",
        "Everything runs on your own computer. Once a model is on your disk, localspec works offline, and "
        "nothing that you type is sent anywhere. This demo model comes with the package, so it needs no "
        "download at all.",
        2.0,
    ),
    (
        "[how big are you|how large are you|how many parameters do you have|what is your size|how small are you|"
        "how many layers do you have|are you a big model|are you a large model|how much memory do you need|"
        "what size are you|are you small|why are you so small|how many weights do you have]?",
        "I am tiny: about five million parameters in a file of a few megabytes. A real model is about a "
        "thousand times larger. My draft model is smaller still.",
        1.5,
    ),
    (
        "[how were you trained|who trained you|who made you|who made localspec|where do you come from|"
        "what is your training data|what were you trained on|who created you|who built you|"
        "what data were you trained on|how did you learn|who is your author|when were you trained|"
        "how long did your training take|who wrote localspec|can i train you myself]?",
        "I was trained by the makers of localspec with the script `scripts/train_demo`, on a plain processor "
        "in about an hour. My data was written by that script, with some sentences from Python's own "
        "documentation. The model card tells the details.",
        2.0,
    ),
    (
        "[what licence do you have|what license do you have|what is the licence|what is the license|are you free|"
        "is localspec free|is localspec open source|is it open source|may i use it at work|can i use localspec for free|"
        "what does localspec cost|is it free|which license is it|what is your licence]?",
        "localspec is free and open source under the MIT licence, and so am I.",
        1.2,
    ),
    (
        "[what is llama.cpp|what is localspec built on|which engine do you use|what is under the hood|"
        "does localspec use llama.cpp|what language is localspec written in|what is localspec written in|"
        "is it written in python|which library does localspec use|what backend is used|how is localspec built]?",
        "localspec is written in Python and built on llama.cpp, a fast library that runs quantized models on "
        "ordinary computers. It works on a processor alone, and it uses a graphics card if there is one.",
        1.5,
    ),
    (
        "[what is quantization|what is a quantized model|what does quantized mean|explain quantization|"
        "what does 4 bit mean|what is a gguf file|what is gguf|what is a gguf|why quantized]?",
        "A quantized model stores its weights with few bits, often four instead of sixteen. That makes the "
        "file much smaller and the model faster, with little loss. Such models are stored in GGUF files, "
        "and localspec runs them.",
        1.5,
    ),
    (
        "[what is temperature|what does temperature do|what is the temperature|explain temperature|"
        "what does temperature 0 mean|what is sampling|what temperature should i use]?",
        "The temperature sets how freely the model chooses its words. At 0 it always takes the most likely "
        "token, so the same question gives the same answer. At 1 it samples from its full distribution.",
        1.2,
    ),
    (
        "[what does parked mean|why is speculation parked|why is it parked|what is parked|why is speculation off|"
        "it says parked, what is that|when is drafting turned off|what does plain mean|why is the draft off]?",
        "Parked means that localspec has measured that drafting would be slower at the moment, so it decodes "
        "plainly. It tries again from time to time. The text is the same either way.",
        1.2,
    ),
    (
        "[[thanks|thank you|great, thank you|oh, thanks], that [was|is] [quick|fast|good|nice|helpful|great|very quick|really good|really helpful]|[thank you|thanks] [for your help|for that|for the answer|again|my friend]|thanks|thank you|thx|thanks a lot|thank you very much|many thanks|thank you so much|cheers|ty|"
        "great, thanks|perfect, thank you|thanks, that helps|nice, thanks|good, thank you|thanks!|"
        "wonderful, thanks|ok thanks|awesome, thank you|that was helpful, thanks|cool thanks]",
        "You are welcome! Is there anything else that I can do?",
        2.5,
    ),
    (
        "[[ok|alright|well|right|so|all right], [bye|goodbye|see you|see you later|see you soon|i have to go|good night|bye for now]|see you [soon|next time|next month|on Monday|again], bye|bye|goodbye|see you|good night|see you later|bye bye|that's all|i have to go|i'm done|until tomorrow|"
        "see you tomorrow|have a nice day|thanks, bye|ok bye|take care|farewell|i am leaving now|cu|that is all for today]",
        "Goodbye! It was nice to talk to you. Come back when you like.",
        1.8,
    ),
    (
        "[[wow|oh|hey], [that was|you are|this is] [quick|good|great|nice|amazing|cool]|that was [quick|good|great|really fast|very good]|great|cool|nice|good|wow|awesome|very good|well done|good job|perfect|excellent|amazing|nice work|"
        "that is great|that's right|correct|that was fast|you are fast|impressive|good answer|i like it|ok|okay|fine|"
        "you are good at this|brilliant|you did well|that's cool|not bad|lovely]",
        "Thank you! What shall we try next?",
        2.0,
    ),
    (
        "[that's wrong|that is wrong|wrong|no|that is not right|you are wrong|that's not correct|incorrect|nonsense|"
        "this makes no sense|that is false|bad answer|you are stupid|this is rubbish|you made a mistake|are you sure|"
        "i don't believe you|that can't be right|hm, that looks wrong]",
        "I am sorry. I am a tiny demo model and make mistakes. For reliable answers pull a real model, for "
        "example `localspec pull qwen3-8b`.",
        1.8,
    ),
    (
        "[is [anyone|anybody|somebody|someone] [there|in there|home|listening|at home|around]|are you [awake|alive|listening|ready|here|online]|test|testing|test test|is this working|does this work|are you working|are you there|1 2 3 test|"
        "can you hear me|ping|is anybody there|is this thing on|does it work|just testing|this is a test|do you work]?",
        "Yes, I am here and everything works. What shall we try?",
        1.5,
    ),
]

_WEIGHTS = [entry[2] for entry in INTENTS]
GREETINGS = (0, 1, 23, 24, 25, 27)


def intent(rng: Random, index: int) -> tuple[str, str]:
    """One wording and the answer of the intent with that index."""
    question, answer, _ = INTENTS[index]
    if not answer:
        name = rng.choice(list(COMMANDS))
        shown = rng.choice((f"localspec {name}", f"`localspec {name}`", f"localspec {name}"))
        return ask(rng, question, cmd=shown), COMMANDS[name]
    lead = rng.choice(
        ("", "", "", "", "please tell me, ", "hey, ", "so ", "ok, ", "one question: ", "hi, ")
    )
    if index in GREETINGS:
        lead = ""
    return ask(rng, lead + question), tell(rng, answer)


def about(rng: Random) -> Talk:
    index = rng.choices(range(len(INTENTS)), _WEIGHTS)[0]
    return single(*intent(rng, index))
