"""Training words for letters, names, schemas and tools. The grader uses other lists."""

import re
from random import Random

from cria import facts, frames, words
from cria.words import held_out, invented, split

LISTS = (
    words.THINGS, words.ANIMALS, words.CREATURES, words.PLAIN_WORDS, words.TOPICS, words.COUNTED, frames.FILLERS,
    tuple(facts.OPPOSITE.answers), tuple(facts.OPPOSITE.answers.values()),
)  # fmt: skip
COMMON = split("""able, across, action, actor, adult, again, agree, air, airport, alarm, alone, anchor, angle, ankle, area, argue, arm, army, arrow, artist,
aunt, awake, award, balance, band, basket, bath, battle, bean, beauty, bench, berry, bicycle, birth, block, board, bone, border, bottle,
bottom, branch, brand, broom, brush, bucket, build, bunch, button, cable, cake, calm, camera, camp, canvas, captain, card, carpet, cause,
cave, ceiling, cellar, chain, chalk, chance, cheek, chest, chicken, child, choice, church, circle, circus, class, climb, clock, coach,
coast, coin, comb, cotton, couple, cousin, cover, craft, crash, cream, crime, crown, cruel, culture, curtain, damage, dance, danger,
death, debt, degree, depth, desert, dinner, doctor, doubt, dragon, dream, drink, dust, earth, elbow, engine, enjoy, event, exit, extra,
fabric, face, factory, family, farm, farmer, father, fault, feast, fence, fever, field, finger, flame, flight, flood, floor, flour,
flower, focus, forest, frame, fruit, garage, garlic, gate, ghost, giant, glass, glove, glue, goal, grain, grand, gravel, ground, group,
guard, guest, guide, hammer, hand, handle, harbor, hedge, helmet, hill, history, hobby, holiday, honest, hook, hunger, hurry, idea, image,
inch, insect, island, jacket, jewel, join, judge, juice, jungle, kettle, kick, kind, knee, knife, knot, ladder, lawyer, leather, leave,
lesson, level, liquid, local, lucky, lunch, machine, market, mask, master, match, medal, member, memory, metal, middle, mirror, mistake,
mixture, moment, motor, muscle, museum, nature, neck, needle, noble, notice, novel, nurse, object, offer, office, onion, opera, orbit,
order, origin, oven, owner, paint, panel, paper, parade, parent, park, partner, patient, pause, peace, peanut, pencil, person, picture,
pilot, pirate, pizza, plant, plate, pocket, poem, police, potato, pottery, powder, prince, print, prison, prize, problem, public, pull,
pulse, pure, purple, puzzle, queen, quick, rabbit, race, radio, rail, rain, random, ranch, reach, reason, relax, report, rescue, ribbon,
ring, road, rocket, roof, room, root, royal, rubber, rule, salad, sample, sauce, scene, scissors, screen, search, secret, seed, shadow,
shape, share, shelf, shell, shield, shine, shoulder, silence, silk, simple, singer, skill, skin, smile, soap, soldier, south, space,
spark, speech, speed, spirit, sponge, spring, square, stairs, stamp, station, steam, steel, stick, stomach, story, straw, street, student,
sugar, summer, supper, sweater, switch, symbol, tailor, talent, teacher, temple, theater, thread, throat, throne, thunder, ticket, timber,
title, toast, tongue, tool, traffic, treasure, trick, trouble, trumpet, tunnel, uncle, uniform, union, update, upper, useful, valley,
value, velvet, village, voice, vote, voyage, wagon, waiter, walk, wealth, weapon, wedding, weight, west, wheat, wheel, whistle, width,
wind, window, wisdom, witness, woman, wonder, wooden, world, worry, wrist, yard, yellow, youth, zero, zone""")
FOUND = {
    word
    for words_of in (COMMON, *LISTS)
    for entry in words_of
    for word in re.findall(r"\b[a-z]{3,8}\b", entry)
}
LETTER_WORDS = tuple(sorted(word for word in FOUND if not held_out(word)))
# Parts of invented, English-looking words.
PARTS = split("""ab, ack, act, ade, age, ain, air, al, all, am, an, and, ang, ant, ap, ar, ard, ark, art, ash, ask, ast, at, ate, ather, ave,
awn, bar, bel, ber, bit, ble, bo, bri, bu, bur, cam, can, cat, cel, cha, che, cla, clo, col, con, cor, cra, cu, da, dal, den, der, di, dom, dor,
dra, du, ea, ead, eal, ear, eas, ect, ed, een, el, ell, em, en, end, ent, er, ern, es, ess, est, et, eve, ew, ex, ey, fal, fer, fi, fla, flu,
for, fu, gal, gar, gen, gha, gi, gle, glo, go, gra, gre, gu, hal, ham, har, hen, her, hi, hol, hu, ia, ibe, ice, ick, id, ide, ie, ight, ike,
il, ild, im, in, ind, ine, ing, ink, ion, ip, ir, ird, is, ish, ist, it, ith, ive, ja, jo, ju, ka, kel, ker, ki, kno, la, lan, lar, le, len,
ley, li, lin, lo, lor, lu, ly, ma, mal, man, mar, me, mel, men, mer, mi, mo, mon, mor, mu, na, nal, nar, ne, nel, ner, ni, no, nor, nu, oa,
oard, ock, od, og, oil, oke, ol, old, ole, om, on, one, ong, oo, ood, ook, oot, op, or, ore, ork, orn, ort, ose, ot, oth, oud, ough, ould,
ound, our, out, ov, ow, own, ox, oy, pa, pal, par, pe, pen, per, phi, pi, pla, po, por, pre, pri, pu, qua, que, qui, ra, rac, ran, re, rel,
ri, rin, ro, ron, ru, sa, sal, san, sca, se, sel, sen, sha, she, si, sil, ske, sla, so, sor, spi, ste, sto, stra, su, sur, ta, tal, tan, te,
tel, ten, ter, th, the, ti, tin, tle, to, tor, tra, tri, tu, tur, ty, ub, uck, ude, ue, ug, ul, ull, um, un, und, une, up, ur, ure, urn, us,
ush, ust, ut, va, val, ve, vel, ven, ver, vi, vo, wa, war, way, we, wel, wer, whi, wi, win, wo, wor, wri, ya, ye, yo, za, ze, zo""")
FIRST_NAMES = split("""Anna, Carlos, David, Emma, Frank, Henry, Ivan, Laura, Mary, Nina, Oscar, Rosa, Sam, Tom, Victor, Lee, Lucy, Maria, John, James, Robert,
Linda, Susan, Karen, Betty, Helen, Sandra, Carol, Ruth, Sharon, Kevin, Brian, George, Edward, Ronald, Anthony, Jeff, Gary, Stephen,
Andrew, Raymond, Greg, Joshua, Jerry, Walter, Patrick, Arthur, Ryan, Roger, Joe, Jack, Justin, Terry, Gerald, Keith, Willie, Ralph,
Lawrence, Nicholas, Roy, Benjamin, Bruce, Adam, Fred, Wayne, Billy, Louis, Jeremy, Aaron, Randy, Howard, Russell, Bobby, Victoria, Martin,
Ernest, Todd, Jesse, Craig, Alan, Shawn, Clarence, Sean, Philip, Johnny, Earl, Jimmy, Antonio, Danny, Bryan, Tony, Luis, Mike, Stanley,
Leonard, Dale, Manuel, Rodney, Norman, Allen, Marvin, Vincent, Jeffery, Travis, Chad, Jacob, Melvin, Alfred, Kyle, Francis, Herbert,
Frederick, Joel, Don, Ricky, Troy, Randall, Alice, Amy, Angela, Cynthia, Debra, Doris, Evelyn, Frances, Gloria, Heather, Janet, Jean,
Jessica, Joan, Judith, Julie, Kelly, Kim, Lisa, Lori, Marie, Martha, Nicole, Pamela, Rachel, Rebecca, Sara, Sarah, Shirley, Stephanie,
Teresa, Theresa, Virginia, Ahmed, Ali, Amir, Chen, Yuki, Hiro, Kenji, Mei, Ravi, Priya, Anil, Fatima, Hassan, Yusuf, Leila, Zara, Diego,
Pedro, Sofia, Lucia, Elena, Marco, Luca, Paolo, Pierre, Jules, Lars, Ingrid, Astrid, Nils, Boris, Anton, Vera, Katya, Milan, Jana""")
PLACES = split("""Paris, Rome, Madrid, Berlin, Tokyo, Lima, Athens, London, Moscow, Boston, Chicago, Dallas, Denver, Miami, Seattle, Austin, Toronto,
Dublin, Lyon, Milan, Turin, Naples, Venice, Hamburg, Cologne, Vienna, Prague, Oslo, Bergen, Helsinki, Lisbon, Porto, Mumbai, Lahore,
Kabul, Hanoi, Manila, Jakarta, Seoul, Osaka, Sydney, Perth, Accra, Lagos, Tunis, Quito, Bogota, Caracas, Santiago, Brazil, Mexico, India,
Poland, Sweden, Norway, Chile, Nepal, Texas, Leeds, York, Oxford, Geneva""")
STRING_KEYS = split("""name, city, country, color, street, animal, fruit, author, title, language, brand, job, team, sport, game, song, book, hotel, school,
teacher, friend, father, sister, owner, king, island, planet, month, day, food, drink, metal, flower, tree, car, train, ship, shop, bank,
street_name, first_name, last_name, nickname, village, company, painter, singer, actor, guest, host, doctor, captain, winner, product,
type, group, region, address, label, subject""")
INTEGER_KEYS = split("""age, price, year, count, size, weight, height, length, width, score, level, floor, room, seats, pages, rooms, doors, wheels, eggs, cats,
dogs, cows, birds, books, cars, days, hours, minutes, weeks, total, cost, speed, distance, depth, stock, players, votes, copies, chairs,
apples, id, bus, gate, row, line, rank""")
BOOLEAN_KEYS = split("""open, paid, ready, new, old, free, full, empty, clean, dirty, safe, cold, wet, dry, sold, broken, closed, active, public, private,
married, hungry, tired, sick, late, early, fast, slow, big, small, tall, heavy, cheap, loud, quiet, sent, found, lost, used, locked,
valid, done, urgent, fresh, vegan, sweet, rich, famous""")
TOPICS = split("""price, height, weight, age, size, length, color, score, rank, rating, address, owner, author, speed, cost, level, status, weather,
population, area, depth, width, value, title, job, salary, birthday, language, flag, king, mayor, team, coach, menu, stock, year, time,
distance, power, smell, shape, sound, name, nickname, friend, teacher, school, shop, street, doctor, hotel, garden, color code, phone
number, room number""")
ARGUMENTS = split("""city, person, item, country, place, product, book, car, animal, player, student, shop, company, street, room, customer, song, team,
friend, ship, train, house, member, guest, dog, plant""")
# Common words in the grader's keys, topics and results, excluded here; a hash holds out its other words.
GRADED_LABELS = split("""flavor, neighbor, garden, uncle, bottles, trees, houses, steps, warm, lazy, strong, noisy, visible, modern, mood, volume,
winner, fuel, grade, balance, seat, gate, platform, lunch, brother, village, patient, machine, bird, singer, purple, narrow, broken,
free, pink, door, code, opening, hour, best, main, street, home, car, park""")
RESULT_WORDS = split("""sunny, cloudy, windy, blue, red, green, black, white, yellow, brown, orange, open, closed, ready, late, good, bad, great, small, big,
high, old, new, cold, sweet, round, square, empty, full""")


def invented_word(rng: Random) -> str:
    """An invented word of 3 to 8 letters, never one held out for the grader."""
    while True:
        word = assembled(rng) if rng.random() < 0.6 else invented(rng)
        if 3 <= len(word) <= 8:
            return word


def assembled(rng: Random, want_held_out: bool = False) -> str:
    """A word of 3 to 8 letters from two or three `PARTS`."""
    while True:
        word = "".join(rng.choice(PARTS) for _ in range(rng.choice((2, 2, 3))))
        if 3 <= len(word) <= 8 and held_out(word) == want_held_out:
            return word


def letter_word(rng: Random) -> str:
    """A word to spell: common or invented."""
    return rng.choice(LETTER_WORDS) if rng.random() < 0.4 else invented_word(rng)


def label(rng: Random) -> str:
    """Any word as a key, topic or result: the model learns to copy such words, not to memorize a list."""
    while True:
        word = letter_word(rng)
        if word not in GRADED_LABELS:
            return word


def person(rng: Random) -> str:
    """A person's name: real or invented."""
    return rng.choice(FIRST_NAMES) if rng.random() < 0.55 else invented_word(rng).capitalize()


def place(rng: Random) -> str:
    """A city or country: real or invented."""
    return rng.choice(PLACES) if rng.random() < 0.5 else invented_word(rng).capitalize()
