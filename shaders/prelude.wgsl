// prelude: the step, shared by all kernels. Its header has the offset of each section, so that programs of
// different capacities share pipelines.
@group(0) @binding(0) var<storage, read> step: array<u32>;

const ROWS: u32 = 0u;  // header words
const OUTPUTS: u32 = 2u;
const UPDATES: u32 = 3u;
const COPIES: u32 = 4u;
const SEQUENCES_AT: u32 = 6u;  // header words with the offset of a section
const OUTPUTS_AT: u32 = 7u;
const SAMPLING_AT: u32 = 8u;
const BIASES_AT: u32 = 9u;
const UPDATES_AT: u32 = 10u;
const COPIES_AT: u32 = 11u;
const ROWS_AT: u32 = 12u;  // offset of the rows, which follow the header

override ROW_WORDS: u32 = 5u;
override SEQUENCE_WORDS: u32 = 4u;

struct Row { source: u32, value: u32, sequence: u32, state_row: u32, position: u32 }
struct Group { read: u32, write: u32, held: u32 }

fn row_at(row: u32) -> Row {
  let at = ROWS_AT + row * ROW_WORDS;
  return Row(step[at], step[at + 1u], step[at + 2u], step[at + 3u], step[at + 4u]);
}

fn sequence_at(sequence: u32) -> u32 { return step[SEQUENCES_AT] + sequence * SEQUENCE_WORDS; }

fn output_at(output: u32) -> u32 { return step[OUTPUTS_AT] + 3u * output; }

fn group_at(sequence: u32, group: u32) -> Group {
  let at = sequence_at(sequence) + 4u + 3u * group;
  return Group(step[at], step[at + 1u], step[at + 2u]);
}

fn is_nan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
