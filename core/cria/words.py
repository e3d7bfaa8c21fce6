"""Subjects of the training stream's refused questions. The grader uses other lists."""

from random import Random
from zlib import crc32


def held_out(key: str, percent: int = 15) -> bool:
    """True if a key is reserved for the grader: a hash, independent of any seed."""
    return crc32(key.encode()) % 100 < percent


def invented(rng: Random, want_held_out: bool = False) -> str:
    """An invented word of one to three syllables and a coda."""
    while True:
        word = "".join(
            rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(1, 3))
        ) + rng.choice(CODAS)
        if len(word) > 3 and held_out(word) == want_held_out:
            return word


def split(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list over several lines."""
    return tuple(word.strip() for word in text.replace("\n", " ").split(",") if word.strip())


ONSETS = split(
    "b, bl, br, c, ch, d, dr, f, fl, g, gr, h, j, k, kr, l, m, n, p, pl, qu, r, s, st, sh, t, tr, v, w, y, z, zw"
)
VOWELS = split("a, e, i, o, u, a, e, i, o, u, ai, oo, ee, ia, ou")
CODAS = ("", "", "n", "r", "s", "l", "t", "x", "m", "nd", "rk", "p", "ng", "land", "ia")

COUNTRIES = split("""Brazil, Canada, Mexico, India, Turkey, Poland, Sweden, Norway, Finland, Portugal, Ireland, Kenya,
Nigeria, Morocco, Algeria, Tunisia, Ghana, Mali, Chad, Sudan, Ethiopia, Somalia, Uganda, Angola, Zambia, Argentina, Chile,
Bolivia, Ecuador, Venezuela, Paraguay, Panama, Honduras, Jamaica, Haiti, Iran, Iraq, Syria, Jordan, Israel, Oman, Yemen,
Qatar, Nepal, Bangladesh, Pakistan, Myanmar, Laos, Cambodia, Vietnam, Malaysia, Indonesia, Mongolia, Korea, Ukraine, Romania,
Hungary, Austria, Switzerland, Belgium, Croatia, Serbia, Albania, Iceland, Latvia, Estonia, Malta, Texas, California, Florida,
Scotland, Africa, Europe, Asia, Bavaria, Narnia, Atlantis, the moon, Mars, the United States, my country, Paris, London, Berlin""")
THINGS = split("""a car, the moon, my shirt, a table, the wall, a bus, an apple, a cherry, a grape, an orange, a pear, a plum, a melon,
a rose, a tulip, a book, the sea, the river, a cloud, the night, a door, a house, a stone, sand, gold, silver, iron, milk,
coffee, tea, wine, beer, water, ice, fire, smoke, butter, cheese, chocolate, honey, salt, sugar, pepper, rice, a tree, a leaf,
a mouse, an elephant, a lion, a tiger, a wolf, a frog, a penguin, a swan, a train, a ship, a plane, your hair, my eyes, his hat,
her dress, the flag, a pencil, a ball, a shoe, a coat, a lamp, music, love, time, a number, a dog, a cat, a spider, Paris, Monday""")
ANIMALS = split("""a wolf, a lion, a tiger, a bear, an elephant, a mouse, a rat, a rabbit, a fox, a goat, a donkey, a camel, a giraffe,
a zebra, a monkey, a frog, a toad, a snake, a lizard, a turtle, a fish, a shark, a whale, a dolphin, an octopus, a squid, a bee,
a wasp, a fly, a butterfly, a worm, a snail, a beetle, a lobster, a shrimp, a scorpion, a centipede, a penguin, an owl, an eagle,
a parrot, a swan, a chair, a table, a stool, a robot, a piano, a person, a baby, my uncle, a dragon, a unicorn, a monster, a car,
a bed, a llama, a deer, a bat, a mole, a hamster, a kangaroo, a crocodile, a pigeon, a turkey, a goose, France, Monday, snow""")
CREATURES = split("""wolf, lion, tiger, elephant, mouse, rat, rabbit, fox, goat, donkey, camel, giraffe, zebra, monkey, frog, toad, snake,
lizard, turtle, fish, shark, whale, dolphin, octopus, bee, wasp, fly, butterfly, worm, snail, beetle, lobster, penguin, owl,
eagle, parrot, swan, pig, duck, spider, ant, crab, bird, hen, goose, turkey, robot, dragon, unicorn, monster, car, tree,
kangaroo, crocodile, hamster, bat, mole, deer, seal, hippo, rhino, gorilla, oyster, planet, chair""")
PLAIN_WORDS = split("""good, rich, old, new, long, short, thick, thin, hard, soft, loud, quiet, clean, dirty, wet, dry, empty, full, early,
late, heavy, light, dark, bright, strong, weak, cheap, easy, difficult, near, far, high, low, left, right, open, closed, love,
war, day, night, black, white, true, in, on, over, under, before, after, always, never, buy, sell, give, take, win, lose, push,
pull, brave, clever, polite, sweet, sour, sharp, round, blue, green, table, dog, Paris, Monday, seven, water, music, kind""")
NOT_DAYS = split("""Easter, Christmas, January, March, July, August, December, summer, winter, New Year, my birthday, lunch, tomorrow,
yesterday, the weekend, the holiday, Paris, France, the end, the war, midnight, noon, the party, the game, school, the wedding""")
NOT_MONTHS = split("""Easter, Christmas, Monday, Tuesday, Friday, Sunday, summer, winter, spring, New Year, my birthday, tomorrow, Ramadan,
next year, the weekend, the holiday, Paris, Egypt, the end, the war, Wednesday, the exam, the party, school, Saturday""")
COUNTED = split("""stars in the sky, fish in the sea, people in the world, people in France, countries in Europe, countries in the world,
planets in the sky, cities in Japan, days in a year, days in a month, weeks in a year, hours in a week, minutes in a day,
seconds in an hour, seconds in a day, bones in the body, teeth in a mouth, keys on a piano, strings on a guitar, players in a team,
cards in a deck, pages in a book, words in English, grains of sand, trees in a forest, books in the library,
students in my class, rooms in my house, cars in London, eggs in a box, apples in a tree, birds in the sky, cows on a farm,
eyes on a spider, wheels on a car, wheels on a bus, sides in a triangle, corners in a square, colors in the rainbow, months in a day,
days in an hour, years in a century, years in a decade, grams in a kilo, meters in a mile, inches in a foot, cents in a dollar""")
NOT_RECORDS = split("""largest city, largest country, smallest country, richest man, oldest person, tallest man, tallest building, tallest tree,
fastest car, fastest train, best singer, best movie, best song, longest bridge, longest road, longest word, deepest lake,
deepest ocean, coldest planet, coldest place, hottest place, highest building, largest desert, largest lake, largest island,
smallest animal, smallest bird, slowest animal, strongest animal, smartest animal, oldest tree, oldest city, blue planet,
green planet, nearest star, brightest star, largest star, biggest bank, cheapest phone, best team, worst day, heaviest metal,
hardest stone, red star, longest snake, largest bird, smallest ocean, shortest river, lowest mountain, blue mountain, red ocean""")
NAMES = split("""Anna, Bob, Carlos, David, Emma, Frank, Grace, Henry, Ivan, Julia, Karl, Laura, Mary, Nina, Oscar, Paul, Rosa, Sam, Tom, Victor,
Napoleon, Einstein, Shakespeare, Mozart, Newton, Cleopatra, Caesar, Picasso, Darwin, Lincoln, Beethoven, Gandhi, Plato, Galileo,
the president, the king, the queen, the pope, my neighbor, my boss, my mother, my father, your maker, the mayor, John Smith""")
TOPICS = split("""football, music, politics, history, science, art, love, war, money, the weather, physics, chemistry, biology, cooking, poetry,
computers, the internet, Python, space, time, religion, philosophy, economics, medicine, gravity, electricity, the stock market,
bitcoin, quantum mechanics, democracy, evolution, dinosaurs, volcanoes, the ocean, the brain, the heart, school, cars, trains, bread,
chess, dreams, ghosts, magic, robots, the Romans, the future, photosynthesis, black holes, climate, fashion, tennis, coffee, sleep""")
