"""Question frames of the training stream for a noun phrase, such as `the capital of France`."""

from cria.phrasing import expand_all

PREFIXES = (
    "",
    *expand_all("""
[hey|hi|hello|ok|okay|so|now|well|right|cria|alright|and|please|hmm|oh],
[hey|hi|hello|ok] cria,
quick question:
[another|a|one more|next|my next|here is a|here's a|one last] question:
[i have a question|i need your help|i need some help|help me|listen|one more thing|one more|let's try this|new one].
[i forgot|i always forget this|i am not sure|i'm curious|just curious|i was wondering|for my homework|for a quiz|for school],
[can|could] you help me?
answer [this|me]:
[please answer|tell me|please tell me|do you know this|try this|question|i ask you]:
[excuse me|sorry|by the way|good|great|nice|thanks|now tell me|then|a small one|my friend asks],
my [son|teacher|friend|daughter|sister|brother] wants to know:
"""),
)

# Filler words for questions about numbers; none names an operation.
FILLERS = tuple(
    """um uh please just now then really so well like you know i we me my it that this the a do can could
    will would for of to at here too also maybe again quickly right okay in with have want need let us""".split()
)

SUFFIXES = expand_all("""
[?|!|.|...|??]
[, |]please[?|.|]
, thanks[.|!|]
, [cria|my friend|do you know|if you know|can you tell me|right now|exactly][?|]
? [thanks|thank you|please|i forgot|do you know|tell me|i need to know|just curious|i am not sure].
""")
# Users mostly end a question with "?" or nothing, so these endings are drawn more often.
COMMON_SUFFIXES = ("", "?", "?", "?", ".")

NOUN_FRAMES = expand_all("""
[what is|what's|whats] {np}
[what would|what could|what might|what do you think] {np} [be|is]
[tell|give|show|teach] me {np}
[name|say|state|write|find|guess] {np}
[can|could|would|will] you [name|say|tell me|give me|write] {np}
[do|don't] you know {np}
{np}
{np} is
{np}: what is it
{np} is what
{np} is called what
{np} is [...|___|what exactly]
i [need|want|would like|am looking for|forgot|don't know|need to know|want to know] {np}
i [need|want|would like] to [know|hear|learn] what {np} is
[can|could|would] you [tell|show|teach] me what {np} is
[please|just|simply] [tell me|say|name] what {np} is
[do you know|tell me|say|i wonder|i forgot|guess|i want to know|let me know] what {np} is
do you [remember|have] {np}
is it true that you know {np}
what do [you|people|we] call {np}
what [answer|word] is right for {np}
what is the answer: {np}
what is the [name|word] for {np}
which [is|one is] {np}
fill in the [gap|blank]: {np} is
complete [this|the sentence]: {np} is
my question is about {np}
[how about|what about|and what about|and] {np}
[can|could] you find [out|] what {np} is
[someone|my teacher|my friend] [asked me|wants to know] what {np} is
""")
