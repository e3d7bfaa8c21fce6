// slots: a sequence's rows of the step and its recurrent state, which is read from its read slot (zeros if the
// sequence holds no rows yet) and written to its write slot, possibly the same.
override GROUP: u32 = 0u;
override SLOT_FLOATS: u32 = 1u;

struct Slot { first: u32, rows: u32, read: u32, write: u32, is_held: bool }  // read, write: floats before the slot

fn slot_of(sequence: u32) -> Slot {
  let at = sequence_at(sequence);
  let group = group_at(sequence, GROUP);
  let read = group.read * SLOT_FLOATS;
  return Slot(step[at], step[at + 1u], read, group.write * SLOT_FLOATS, group.held > 0u);
}
