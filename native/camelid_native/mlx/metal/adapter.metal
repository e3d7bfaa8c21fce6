// adapter: low-rank terms in the slots of adapters (plan/op_rows_adapters.py). A slot has, for a matrix or a stack of
// them, MOST scales, the rank and three unused floats; A [EXPERTS, MOST, N_IN]; B [EXPERTS, MOST, N_OUT].
//
// Constants: those, UNITS slots of WIDTH floats, SLOTS of experts of a row, IS_STACK, OF_OUTPUTS.
constant constexpr uint ADAPTER_WORD = 2, ADAPTER_HEADER = 4;  // the word of a sequence; floats from the scales to A

struct Term { const device float *scales, *a, *b; uint rank; };

// The slot of a row of y, which is of a token or of an output; 0 without an adapter.
inline uint slot_of(const device uint *step, uint t) {
  uint sequence = OF_OUTPUTS ? step[step[OUTPUTS_AT] + t * OUTPUT_WORDS + 1] : row_at(step, t).sequence;
  uint slot = sequence_at(step, sequence)[ADAPTER_WORD];
  return slot < UNITS ? slot : 0;
}

// The term of a pair of a row and a slot of experts, whose ids are `ids`.
inline Term term_of(const device float *held, uint slot, const device float *ids, uint pair) {
  uint expert = IS_STACK ? min(uint(ids[pair]), EXPERTS - 1) : 0;
  const device float *scales = held + ulong(slot) * WIDTH, *a = scales + MOST + ADAPTER_HEADER;
  const device float *b = a + ulong(EXPERTS) * MOST * N_IN;
  ulong first = ulong(expert) * MOST;
  return {scales, a + first * N_IN, b + first * N_OUT, min(uint(scales[MOST]), MOST)};
}
