// chunk: 32 weights of a row as two runs of 16; a weight is q * scale + offset of its run. A codec defines
// chunk_at(row, c), the chunk c of a row; or packed_at(row, c) if its weights are integers in bytes, or coded_at(row, c)
// if they are codes of a table: packed.wgsl and pairs.wgsl have chunk_at then. SPAN is the distance of the runs, which
// share the bytes of quants.
// A kernel declares K and the weight's buffer twice: `weights` in units of 16 bytes, `words` in words.
override SPAN: u32 = 4u;  // in vec4 of x
override SCALES: u32 = 1u;  // of a chunk: 1 if its runs are side by side, with the same scale and offset
override SHIFT: u32 = 0u;  // the second run of a packed chunk is 2^SHIFT times its weights
override PAIR: u32 = 0u;  // distance of the two weights of a byte, in vec4 of x; 0 without pairs.wgsl
override ZERO: i32 = 0;  // a packed weight is (q - ZERO) * scale, without an offset; 0 for other types

struct Chunk { q: array<vec4<f32>, 8>, scale: vec2<f32>, offset: vec2<f32> }
struct Packed { a: vec4<u32>, b: vec4<u32>, scale: vec2<f32>, offset: vec2<f32> }  // a run is the bytes of four words

fn n_chunks() -> u32 { return (K + 31u) / 32u; }

fn chunk_number(row: u32, c: u32) -> u32 { return row * (K / 32u) + c; }

// Of blocks of 256 weights. A chunk's place in the block, c % 8, is the same for all rows.
fn block_number(row: u32, c: u32) -> u32 { return row * (K / 256u) + c / 8u; }

fn first_run(c: u32) -> u32 { return c / (SPAN / 4u) * (SPAN / 2u) + c % (SPAN / 4u); }  // in runs of 16 columns

fn column_of(c: u32, i: u32) -> u32 {  // in vec4, of q[i] of chunk c
  return 4u * first_run(c) + i % 4u + select(0u, SPAN, i >= 4u);
}

fn unshift() -> f32 { return 1.0 / f32(1u << SHIFT); }

fn is_inside(column: u32) -> bool { return K % 32u == 0u || column < K / 4u; }

fn weights_of(chunk: ptr<function, Chunk>, i: u32) -> vec4<f32> {
  return (*chunk).q[i] * (*chunk).scale[i / 4u] + (*chunk).offset[i / 4u];
}
