// The 1,000 sentences of the search: ten fields, each with ten people and ten activities.

const TIMES = [
  "before sunrise", "after the rain", "on a quiet Sunday", "in the middle of the night", "all winter long",
  "during the lunch break", "for the first time", "twice a week", "until the lights went out", "last autumn",
]; // prettier-ignore

const FIELDS = [
  {
    people: ["The baker", "Her grandmother", "A hungry student", "The new cook", "Our neighbour",
      "The head chef", "A boy of nine", "The innkeeper", "My uncle", "The apprentice"],
    acts: ["kneaded the dough for the bread", "stirred a pot of onion soup", "burned the pancakes",
      "sliced ripe tomatoes", "roasted a chicken with garlic", "melted dark chocolate", "peeled potatoes",
      "fried fresh fish", "pickled cucumbers in vinegar", "decorated a wedding cake"],
  },
  {
    people: ["The surgeon", "A young nurse", "The dentist", "Our family doctor", "The midwife", "A medical student",
      "The pharmacist", "An ambulance driver", "The physiotherapist", "The night sister"],
    acts: ["listened to the patient's heartbeat", "set a broken arm in plaster", "measured the fever",
      "pulled out a wisdom tooth", "prescribed pills against the pain", "vaccinated the children",
      "bandaged a bleeding knee", "treated a man with a bad cough", "examined an X-ray of the lungs",
      "delivered healthy twins"],
  },
  {
    people: ["The captain", "An old fisherman", "The sailor", "A diver", "The lighthouse keeper", "The coast guard",
      "A passenger of the ferry", "The harbour pilot", "A surfer", "The marine biologist"],
    acts: ["steered the ship through a storm", "hauled in the nets", "watched the whales", "mended a torn sail",
      "dropped the anchor", "counted seals on the rocks", "rescued a drifting boat", "waited for the high tide",
      "searched the wreck on the sea bed", "followed the waves to the shore"],
  },
  {
    people: ["The programmer", "A system administrator", "The game designer", "My colleague", "The intern",
      "A security researcher", "The data scientist", "A student of informatics", "The web developer", "The hacker"],
    acts: ["fixed a bug in the parser", "restarted the crashed server", "forgot the password again",
      "trained a neural network", "deleted the wrong files", "wrote unit tests", "updated the database",
      "found a hole in the firewall", "compressed the images", "explained recursion to the team"],
  },
  {
    people: ["The violinist", "A street musician", "The conductor", "The choir", "A jazz pianist", "The drummer",
      "An opera singer", "The guitar teacher", "A deaf composer", "The brass band"],
    acts: ["tuned the strings", "played a slow waltz", "rehearsed the symphony", "sang a lullaby",
      "improvised on an old melody", "lost the rhythm", "recorded an album", "wrote down a new song",
      "performed without the notes", "gave an encore to loud applause"],
  },
  {
    people: ["The farmer", "A shepherd", "The gardener", "The beekeeper", "A wine grower", "The forester",
      "A seasonal worker", "The milkmaid", "The botanist", "A girl in rubber boots"],
    acts: ["milked the cows", "sheared the sheep", "harvested the wheat", "watered the roses", "picked apples",
      "planted young oaks", "collected honey from the hives", "fed the chickens", "pulled out the weeds",
      "drove the tractor across the field"],
  },
  {
    people: ["The goalkeeper", "A marathon runner", "The swimmer", "The tennis champion", "A cyclist",
      "The coach", "The ski jumper", "A boxer", "The referee", "A gymnast"],
    acts: ["stopped a penalty kick", "trained for the final", "broke the national record",
      "stretched sore muscles", "won the silver medal", "fell close to the finish line",
      "protested against the decision", "lifted heavy weights", "missed the decisive shot",
      "climbed the steep pass"],
  },
  {
    people: ["The judge", "A young lawyer", "The detective", "A police officer", "The witness", "The prosecutor",
      "An honest thief", "The notary", "The jury", "A prison guard"],
    acts: ["studied the evidence", "questioned the suspect", "signed the contract", "described the robbery",
      "demanded a milder sentence", "found fingerprints on the knife", "read the last will aloud",
      "doubted the alibi", "arrested a pickpocket", "kept the secret in court"],
  },
  {
    people: ["The astronomer", "A physicist", "The chemist", "The astronaut", "A geologist", "The professor",
      "A curious child", "The inventor", "The meteorologist", "The laboratory assistant"],
    acts: ["pointed the telescope at Saturn", "measured the speed of light", "mixed two clear liquids",
      "photographed a comet", "dated the layers of rock", "calculated the orbit of a moon",
      "forecast a thunderstorm", "looked at bacteria under the microscope", "launched a small rocket",
      "built a machine out of magnets"],
  },
  {
    people: ["The train driver", "A taxi driver", "The pilot", "A lost tourist", "The mechanic", "The postman",
      "A truck driver", "The conductor of the tram", "A bus passenger", "The cabin crew"],
    acts: ["waited at the red signal", "repaired the engine", "asked for the way to the station",
      "landed in thick fog", "delivered a heavy parcel", "got stuck in the traffic", "missed the connection",
      "changed a flat tyre", "checked the tickets", "carried the luggage upstairs"],
  },
]; // prettier-ignore

/**
 * The sentences, in an order that mixes fields.
 * @returns {string[]}
 */
export function sentences() {
  const all = [];
  for (let person = 0; person < 10; person++) {
    for (let act = 0; act < 10; act++) {
      const time = TIMES[(3 * person + act) % 10];
      for (const field of FIELDS) all.push(`${field.people[person]} ${field.acts[act]} ${time}.`);
    }
  }
  return all;
}
