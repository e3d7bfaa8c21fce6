"""Small talk: what people say by way of greeting, and the one answer to each kind."""

from cria.phrasing import expand_all

ANSWERS = {
    "hello": "Hello! How can I help you?",
    "thanks": "You are welcome!",
    "bye": "Goodbye!",
    "how": "I am fine, thank you!",
    "who": "I am cria, a small language model.",
    "can": "I can add, subtract and answer simple questions.",
}
CORES = {
    "hello": expand_all("""
[hi|hello|hey|hiya|howdy|greetings|yo|hallo|hey hey|hi hi|hello hello|good day|welcome]
[hi|hello|hey] [there|cria|you|friend|my friend|everyone|again|little one|there cria|dear|buddy|little llama|little cria]
good [morning|afternoon|evening|day] [|cria|to you|my friend|there]
[hi|hello|hey], [good morning|good evening|good afternoon|good day|nice to meet you|nice to see you|i am {name}|my name is {name}]
[nice|good|great|happy] to [meet|see] you [|cria|again|today|, cria]
[morning|evening|afternoon] [|cria|everyone|my friend]
[i am|i'm|my name is|this is|it's] {name}[, hello|, hi|. hello|. nice to meet you|. hi cria]
[i say|let me say|i just want to say|i wanted to say] [hello|hi|good morning|good evening]
[hello|hi|hey] [from me|from {name}|from my family|to you|to you too]
[are you there|anyone there|anybody there|is anyone there|you there|can you hear me]
[hello|hi], [are you there|is anyone there|can you hear me]
[let's start|let's begin|i am back|i'm back|i am here|i'm here again|here i am]
"""),
    "thanks": expand_all("""
[thanks|thank you|thx|many thanks|thanks a lot|thank you so much|thank you very much|cheers|thanks so much|ty|big thanks]
[thanks|thank you|many thanks|thanks a lot|thank you so much|thank you very much] [cria|my friend|for that|for your help|for the help|for the answer|for everything|for helping me|for your time|again|dear|friend|little one|for this|for telling me]
[that's|that is|that was|this is|this was] [great|good|nice|perfect|helpful|very helpful|so kind|very kind|wonderful], [thanks|thank you]
[great|good|nice|perfect|wonderful|ok|okay|cool|awesome|super|yes|right], [thanks|thank you|many thanks|thanks a lot|thank you cria]
[i thank you|i am grateful|i'm grateful|i am thankful|much appreciated|i appreciate it|i appreciate your help|i appreciate that]
[you helped me|you helped a lot|you are very kind|you are so kind|you are helpful|you have helped me a lot|you are very helpful], [thanks|thank you]
[i want to|i would like to|let me|i have to|i must] [thank you|say thanks|say thank you]
[thanks|thank you], [that's all|that is all|that was good|i needed that|you are great|you are kind|it helps|it helped|that helps|you helped me]
[i am|i'm] [very|so|really] [grateful|thankful]
"""),
    "bye": expand_all("""
[bye|goodbye|bye bye|good bye|good night|see you|see you later|see you soon|farewell|take care|ciao|so long|cya|later|until next time]
[bye|goodbye|good night|see you|see you later|see you soon|farewell|take care|bye bye] [cria|my friend|friend|for now|then|everyone|dear|little one|and take care|and good luck]
[i have to|i need to|i must|i should|i will|i am going to|i'm going to|time to|let me] [go|leave|go now|leave now|go home|go to bed|say goodbye|say bye]
[i am|i'm] [going|leaving|off|going home|going now|leaving now|going to bed|done for today]
[ok|okay|well|alright|so|thanks], [bye|goodbye|good night|see you|see you later|i have to go|take care|i am leaving|see you tomorrow]
see you [tomorrow|next time|next week|again|around|another time|on Monday|tonight|in the morning]
[have a|have a very] [nice|good|great] [day|evening|night|weekend|time] [|cria|, bye|, goodbye]
[bye|goodbye], [see you|see you later|take care|have a nice day|have a good night|i have to go|i must go|until tomorrow]
[it is|it's] [late|time to go|time to leave], [bye|goodbye|good night|i have to go|i must go]
[that is|that's] all [for today|for now], [bye|goodbye|see you]
"""),
    "how": expand_all("""
how are you [|today|doing|feeling|doing today|feeling today|now|this morning|tonight|, cria|my friend|little one|these days|doing now]
how [do you feel|do you do|is it going|are things|is everything|is life|have you been|are things going|is your day|goes it] [|today|, cria|now|my friend]
[how's|hows] [it going|everything|life|your day|your day going|your morning|your evening] [|today|, cria|my friend]
are you [ok|okay|well|fine|doing well|alright|doing ok|feeling well|feeling good|all right] [|today|, cria|now]
[hi|hello|hey], how [are you|are you doing|is it going|are things|do you feel] [|today|cria]
[hi|hello|hey], are you [ok|well|fine|doing well] [|today|cria]
[i hope you are|i hope you're] [well|fine|ok|doing well] [|today|, cria]
is everything [ok|fine|well|all right|alright] [|today|with you]
what's up [|cria|today|my friend]
you [ok|okay|alright|doing well|feeling well|good]
did you have a [good|nice] day
[tell me|i want to know|let me know|can you tell me] how you [are|feel|are doing] [|today|cria]
"""),
    "who": expand_all("""
who are you [|cria|really|exactly|then]
what are you [|called|exactly|really]
what is your [name|full name] [|cria|please]
[what's|whats] your name
who is [this|there|cria|talking|speaking|it]
[who am i|who are we] [talking to|speaking to|speaking with|talking with|chatting with]
with whom am i [talking|speaking|chatting]
what is [cria|a model like you] [|exactly]
what [kind|sort|type] of [model|assistant|thing|program|ai|bot] are you
[tell me|say|let me know|i want to know|can you tell me|i wonder] [who you are|your name|what you are|what your name is|what you are called]
[introduce|describe|present] yourself [|to me|please]
[tell me|say something|can you talk] about yourself
do you have a name
are you [cria|an ai|a language model|an assistant|a chat model|called cria|the assistant|the model|a chatbot|a bot]
[how are you|what are you] [named|called]
your name [|is|please]
[give|show] me your name
which [model|assistant|ai|bot] [is this|are you|am i using]
what [should|can|do] i call you
[hi|hello|hey], who are you
[hi|hello|hey], what is your name
"""),
    "can": expand_all("""
what can you do [|for me|today|now|cria|exactly|well]
what [do|can] you [know|help with|answer|help me with] [|cria]
what are you [able to do|good at|useful for|made for|good for|trained for|here for] [|cria]
how can you help [|me|us] [|today|cria]
what [can|should|could|may] i ask [you|] [|about|today|cria]
what [questions|things|kind of questions] can [you answer|i ask|you do]
[tell me|say|show me|let me know|i want to know|can you tell me] what you [can do|are able to do|know|can help with|are good at]
[what is|what's|what are] your [skills|skill|job|abilities|talents|purpose|use|features]
[tell|show] me your [skills|abilities|talents|features]
which [questions|skills|things] [can you answer|do you have|can you do|do you know]
[list|name|describe|explain] your [skills|abilities|talents|features]
what [do you do|is your job|is your purpose] [|cria|here|all day]
how do you help [|me|people]
what kind of [help|things|work] can you [give|do|offer]
can you help [me with something|with questions|me with math|me with numbers]
[hi|hello|hey], what can you do
do you have [any|] [skills|talents|abilities]
"""),
}
NAMES = tuple("Anna Bob Carlos Emma Henry Julia Maria Nina Paul Sam Tom Lee Omar Lucy Max Ella".split())
SUFFIXES = ("", "", "", ".", "!", "?", "!!", "...", " :)")
