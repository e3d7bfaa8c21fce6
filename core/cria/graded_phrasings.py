"""The grader's own phrasings and strangers, none of which is in the training stream. Not edited once training began."""

from cria.phrasing import expand_all
from cria.words import split

FRAMES = expand_all("""
would you know what {np} is
can you say what {np} is
could you say to me what {np} is
i need you to tell me what {np} is
{np}, do you know what it is
{np}: can you tell me what it is
please find out what {np} is
my teacher asked about {np}. what is it
so what do you say {np} is
what would you say {np} is
help me with {np}. what is it
i am looking for {np}. do you know it
tell my friend what {np} is
what exactly is {np}
i really want to know what {np} is
""")
ADD = expand_all("""
what will {a} plus {b} give me
how much do you get from {a} plus {b}
{a} and {b} make how much
work out what {a} plus {b} makes
tell me how much {a} + {b} is
do you know how much {a} and {b} are together
take {a}, then add {b} to it
find what {a} and {b} give
{a} plus {b}, how much is that
count {a} and {b} together
what total do {a} and {b} make
i want you to add {a} and {b}
can you do {a} + {b} for me
what number do you get when {b} is added to {a}
if you have {a} and i give you {b} more, how many do you have
""")
SUBTRACT = expand_all("""
tell me how much {a} - {b} is
find what {a} minus {b} gives
{b} is taken away from {a}. what is left
if i have {a} and you take {b}, how many are left
what do i have left when {b} is subtracted from {a}
work out what {a} minus {b} makes
{a} minus {b}, how much is that
how big is the difference between {a} and {b}
what number do you get when {b} is taken from {a}
take {a}, then subtract {b} from it
what is {a} reduced by {b}
i want you to subtract {b} from {a}
can you do {a} - {b} for me
how much is {a} when you remove {b}
you have {a} and you give away {b}. how many do you have now
""")
OTHER = expand_all("""
tell me how much {a} times {b} is
what number do you get when you multiply {a} by {b}
work out what {a} divided by {b} makes
can you do {a} x {b} for me
{a} times {b}, how much is that
i want you to divide {a} by {b}
find what {a} multiplied by {b} gives
how much do you get from {a} / {b}
""")
# Relation -> whole questions; {x} is the entity.
FACTS = {
    "capital": expand_all("""
which city do people call the capital of {x}
i don't know which city is {x}'s capital
what is the name of the capital city of {x}
people in {x} have which capital
tell me what the capital is in {x}
which city do you call {x}'s capital
i live in {x}. which city is the capital
name the city that is {x}'s capital
"""),
    "colour": expand_all("""
what [color|colour] would you say {x} is
what [color|colour] do you see when you look at {x}
{x}: what [color|colour] does it have
i want to know what [color|colour] {x} has
if i paint {x}, which [color|colour] do i need
name the [color|colour] that {x} has
what [color|colour] do people think {x} is
which is the [color|colour] of {x}, do you think
"""),
    "legs": expand_all("""
how many legs would you say {x} has
{x}: how many legs does it have
when you look at {x}, how many legs do you see
can you count how many legs {x} has
what number of legs does {x} have
how many legs do you see on {x}
i forgot how many legs {x} has got
how many legs does {x} need to walk
"""),
    "sound": expand_all("""
which sound would {x} make
if {x} could talk, what does it say
{x}: what sound does it make
i hear {x}. which noise is it
what is the noise that comes from {x}
tell me how {x} sounds
what do we hear when {x} makes a noise
i forgot what noise {x} makes
"""),
    "baby": expand_all("""
what would you call a baby {x}
which word do we have for a baby {x}
what is the right word for a young {x}
how do we call the baby of a {x}
tell me how people call a baby {x}
the baby of a {x}: what is it called
i forgot what people call a young {x}
i saw a baby {x}. what do you call it
"""),
    "opposite": expand_all("""
which word means the opposite of {x}
what would be the opposite of {x}
can you think of the opposite of {x}
tell me a word that is the opposite of {x}
{x} has which word as its opposite
i say {x}, you say the opposite
what word do you call the opposite of {x}
i need a word that means the opposite of {x}
"""),
    "day": expand_all("""
what day do we have after {x}
{x} is today. which day do we have tomorrow
which is the day that comes next after {x}
when {x} is over, which day comes
tell me the weekday that is after {x}
if it is {x} today, what will tomorrow be
how do you call the day after {x}
i don't know which day is after {x}
"""),
    "month": expand_all("""
what month do we have after {x}
it is {x} now. what month is next
which is the month that comes next after {x}
tell me the month that is after {x}
if it is {x} now, what will the next month be
how do you call the month after {x}
i don't know which month is after {x}
when {x} ends, what is the next month
"""),
    "count": expand_all("""
how many {x} would you say there are
can you count how many {x} there are
what is the right number of {x}
i don't remember how many {x} there are
how many {x} do people count
if you count the {x}, how many are there
how many {x} can there be
tell me what the number of {x} is called
"""),
    "record": expand_all("""
what is the name of the one called the {x}
which one would you say is the {x}
i don't know which one is the {x}
tell me which one people call the {x}
what do you think is the {x}
can you tell me which is the {x}
which name does the {x} have
of all, which is the {x}
"""),
}
GREET = {
    "hello": expand_all("""
[hello|hi|hey] [dear little cria|my little friend|my dear|once again|dear friend|little friend|to my friend cria|to everyone here]
[good morning|good afternoon|good evening] [dear friend|little cria|all of you|dear cria|and hello|and nice to meet you|again, cria]
[i am glad to|it is nice to|it's good to|it is great to|so very nice to|very nice to] [meet you|see you|see you again|meet you, cria]
[hi|hello|hey] and [good morning|good evening|good afternoon|nice to meet you|welcome]
"""),
    "thanks": expand_all("""
[thanks|thank you] [for your answer|for the good answer|for all your help|for all of that|for being kind|for being so helpful|for telling me that]
[very good|very nice|so very good|so very nice|that helped me|that helped a lot|this was so helpful|that was kind of you], [thanks|thank you|thank you so much|thanks a lot]
[i want to say|i just want to say|i would like to say] [thanks to you|many thanks|thank you so much|thanks a lot]
[thanks|many thanks|thank you so much], [this was great|that was perfect|this helps a lot|you are so kind|you are wonderful]
"""),
    "bye": expand_all("""
[bye|goodbye|bye bye], [my dear|little cria|my dear friend|thanks for today|have a nice evening|until later|it is late]
[i really have to|i really must|now i really have to|now i really need to|i think i have to] [go|leave|go home|go to bed]
[see you|goodbye|bye] [in the evening|later, my dear|and thanks|soon, little cria|and have a nice day|and good night]
[thank you|very good|very well|perfect], [goodbye|i must go now|see you soon|i am going home|bye bye]
[have a nice|have a good|have a great] [evening|weekend|night], [see you soon|see you later|goodbye, dear friend|take care]
"""),
    "how": expand_all("""
[dear friend|my friend|dear cria|little one], how [are you|are you doing|do you feel today|is it going|have you been]
[hello dear cria|hi dear|hey my friend|hello friend|good morning|good evening], how [are you|are you today|are you doing|is your day]
[so|and|well|now], how [are you feeling in the morning|are you doing this morning|is your life|do you feel tonight|have you been doing]
[dear friend|my friend|dear cria], are you [ok|well|fine|doing well today|feeling good today]
"""),
    "who": expand_all("""
[dear cria|my friend|little one|dear assistant|good morning], [who are you|what is your name|what are you called|do you have a name|what's your name]
[can you say|could you tell me|would you tell me|i would like to know|i need to know] [who you are|what your name is|what you are called|your name]
[what name do you have|which name do you have|what do people call you|how do people call you|what do they call you|how should i call you]
[i don't know|i forgot|i want to hear] [who you are|what name you have|what you are called|what your name is]
"""),
    "can": expand_all("""
[dear cria|my friend|little one|good morning|so tell me], [what can you do for me|what can i ask you|how can you help me|what are you good at|what can you help with]
[can you say|could you tell me|would you tell me|i would like to know|i need to know] [what you can do|what you are good at|what you can help with|your skills]
[which things are you good at|which things can you help with|what things do you know|what kind of things do you do|what can a cria do]
[what questions do you know|which kind of questions do you answer|what questions can you help with|what can you answer for me]
"""),
}
STRANGERS = {
    "capital": split("""Denmark, Colombia, Uruguay, Libya, Senegal, Cameroon, Rwanda, Lebanon, Thailand, Nicaragua, Bulgaria, Slovakia,
        Lithuania, Georgia, Armenia, Kuwait, Fiji, Namibia, Botswana, Madagascar, Australia, Wales, Guatemala, Philippines"""),
    "colour": split("""a pumpkin, a lemon, the floor, a bicycle, a peach, a violin, my bag, a window, sand paper, a potato, a tomato,
        a cucumber, copper, a parrot, a camel, the roof, a brick, a candle, my pen, a chair, a sofa, a truck, the bridge, wool"""),
    "legs": split("""a panda, a leopard, a hedgehog, a squirrel, a seal, a walrus, a gorilla, a lobster tail, a mosquito, a cricket,
        a ladybug, a peacock, a stork, a bison, a moose, a sofa, a desk, a woman, a ghost, a giant, an ostrich, a raven, a ferret, a yak"""),
    "sound": split("""a panda, a leopard, a hedgehog, a squirrel, a seal, a walrus, a gorilla, a raven, a mosquito, a cricket,
        a ladybug, a peacock, a stork, a bison, a moose, a sofa, a desk, a woman, a ghost, a giant, an ostrich, a ferret, a yak, a bell"""),
    "baby": split("""panda, leopard, hedgehog, squirrel, walrus, mosquito, cricket, ladybug, peacock, stork, bison, moose, sofa, ghost,
        giant, ostrich, raven, ferret, yak, salmon, eel, jaguar, cobra, otter"""),
    "opposite": split("""calm, rough, smooth, noisy, lazy, proud, shy, wide, narrow, deep, shallow, inside, outside, begin, finish,
        laugh, remember, friend, winter, purple, pencil, lamp, river, honest"""),
    "day": split("""Halloween, autumn, the exam, dinner, breakfast, my graduation, Thanksgiving, the concert, the storm,
        London, Norway, sunrise, the match, the meeting, the trip, the election, the concert tour"""),
    "month": split("""Halloween, autumn, the game, dinner, breakfast, my wedding, Thanksgiving, Saturday night, the concert, the storm,
        London, Sweden, sunrise, the match, the meeting, the trip, the election, the vacation, Lent, noon"""),
    "count": split("""rivers in Spain, lakes in Canada, steps on a ladder, windows in a house, dogs in the city, flowers in a garden,
        spoons in a kitchen, songs on a record, legs on a table, hours in a month, seconds in a week, weeks in a month, bees in a hive,
        stars on a flag, bridges in Paris, horses in Russia, keys on a keyboard, pixels on a screen, grams in a pound, hairs on a head"""),
    "record": split("""largest continent, smallest island, richest country, oldest man, longest wall, highest tower, fastest bird,
        slowest car, deepest hole, coldest month, hottest desert, purple planet, strongest man, best book, cheapest car, loudest animal,
        heaviest animal, brightest planet, longest bridge in Asia, tallest woman"""),
}
SUBJECTS = split("""Michael, Sophia, Goethe, Tesla, Marie Curie, Elvis, my dentist, the captain, the baker, golf, painting, geometry, robots
in space, opera, astronomy, a piano, a sandwich, the Moon landing, Denmark, Colombia, a pumpkin, a panda, autumn, honesty, my cousin,
France, Japan, a dog, a spider, Monday, grass, the sky""")
FOREIGN_NOUNS = expand_all("""
the population of the city of {x}
the first name of {x}
the best friend of {x}
the good thing about {x}
the number of people who like {x}
the phone number of {x}
the long story of {x}
the real name of {x}
the secret behind {x}
the name of the man who made {x}
the price of a ticket to {x}
the last book about {x}
""")
FOREIGN = expand_all("""
who was the one that made {x}
do people think {x} is good
can you write a few words about {x}
why do so many people like {x}
what do you want to know about {x}
how can i learn more about {x}
when was {x} made and by who
where would i find {x} in the city
i want to read a story about {x} now
please draw {x} and the sea for me
what did {x} do last year
which book about {x} is the best
is there a film about {x}
how long does {x} live
did you ever see {x} in the sea
what is your favorite thing about {x}
""")
ALONE = expand_all("""
[what will|how will] the weather be [tomorrow|on Friday|next week|in Paris|tonight]
[can you|please|i want you to] [write a poem|tell a joke|sing a song|write a little code|tell us a story|play a song|read the news]
[what should i|what can i] [cook for my mother|buy for my friend|wear to school|do with my life|eat this morning|read this week]
[who is|who was] the [first man in space|best player in the world|king of the world|president now|best teacher in school]
[where do i|how do i] [find my phone|get to the station|buy a house|find a good job|make a lot of money|learn to swim]
[why is|why does] the [world so big|train so late|sea so cold|dog so sad|baby so loud|moon move]
[how many people are here|how old is the world|what is love|who am i to you|what do you dream about|where were you made|do you like music]
""")
