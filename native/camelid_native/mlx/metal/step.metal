// step: words of a step (plan/step.py). Constants: ROW_WORDS, SEQUENCE_WORDS.
constant constexpr uint SEQUENCES_AT = 6, OUTPUTS_AT = 7, SAMPLING_AT = 8, BIASES_AT = 9;  // words of the header
constant constexpr uint FIRST_ROW = 12, FIRST_GROUP = 4, GROUP_WORDS = 3, OUTPUT_WORDS = 3;

struct Row { uint sequence, state_row, position; };
struct Group { uint read, write, held; };  // of a paged group: table row, first kept row, rows held before

inline Row row_at(const device uint *step, uint t) {
  const device uint *words = step + FIRST_ROW + t * ROW_WORDS;
  return {words[2], words[3], words[4]};
}

inline const device uint *sequence_at(const device uint *step, uint sequence) {
  return step + step[SEQUENCES_AT] + sequence * SEQUENCE_WORDS;
}

inline Group group_at(const device uint *step, uint sequence, uint group) {
  const device uint *words = sequence_at(step, sequence) + FIRST_GROUP + group * GROUP_WORDS;
  return {words[0], words[1], words[2]};
}
