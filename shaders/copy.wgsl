// copy: pool[destination][:rows] = pool[source][:rows] for each of the step's copies in this group, word by
// word. grid: (tiles of 64 words of a unit, copies).
@group(0) @binding(1) var<storage, read_write> pool: array<u32>;

override GROUP: u32 = 0u;
override UNIT_ROWS: u32 = 16u;
override WORDS: u32 = 1u;  // words of a row

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let at = step[COPIES_AT] + 4u * id.y;
  if (step[at] != GROUP || id.x >= step[at + 3u] * WORDS) { return; }
  let unit = UNIT_ROWS * WORDS;
  pool[step[at + 2u] * unit + id.x] = pool[step[at + 1u] * unit + id.x];
}
