// prelude: the step, as every kernel sees it. Word offsets come from plan/step.py as overrides.
@group(0) @binding(0) var<storage, read> step: array<u32>;

const ROWS: u32 = 0u;  // header words
const OUTPUTS: u32 = 2u;
const UPDATES: u32 = 3u;
const COPIES: u32 = 4u;

override ROWS_AT: u32 = 6u;
override ROW_WORDS: u32 = 5u;
override SEQUENCES_AT: u32 = 6u;
override SEQUENCE_WORDS: u32 = 4u;
override OUTPUTS_AT: u32 = 6u;
override SAMPLING_AT: u32 = 6u;
override BIASES_AT: u32 = 6u;
override UPDATES_AT: u32 = 6u;
override COPIES_AT: u32 = 6u;

struct Row { source: u32, value: u32, sequence: u32, state_row: u32, position: u32 }
struct Group { read: u32, write: u32, held: u32 }

fn row_at(row: u32) -> Row {
  let at = ROWS_AT + row * ROW_WORDS;
  return Row(step[at], step[at + 1u], step[at + 2u], step[at + 3u], step[at + 4u]);
}

fn group_at(sequence: u32, group: u32) -> Group {
  let at = SEQUENCES_AT + sequence * SEQUENCE_WORDS + 4u + 3u * group;
  return Group(step[at], step[at + 1u], step[at + 2u]);
}

fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
