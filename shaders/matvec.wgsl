// matvec: four weight rows per lane times TOKENS token rows. LANES lanes share the weight rows of a quad, so that
// neighbours read neighbouring bytes; a lane reads a chunk of x once for all of its rows. A GPU has 16 lanes per row;
// software adapters pay for every lane at a barrier and use 2.
const SOFTWARE_LANES: u32 = 2u;

alias Chunks = array<Chunk, 4>;  // of the rows of a quad
struct Input { x: array<vec4<f32>, 8>, sums: vec2<f32>, starts: vec2<f32> }  // a chunk of a token row, its runs' sums

fn input_at(x_at: u32, c: u32) -> Input {
  var x32: array<vec4<f32>, 8>;
  for (var i = 0u; i < 8u; i++) { x32[i] = x_of(x_at, c, i); }
  let sums = vec2(sum_of(x32[0], x32[1], x32[2], x32[3]), sum_of(x32[4], x32[5], x32[6], x32[7]));
  return Input(x32, sums, starts_of(sums));
}

fn add_chunk(chunk: Chunk, input: Input, sum: f32) -> f32 {
  let b = fma4(chunk.q[7], input.x[7], fma4(chunk.q[6], input.x[6],
    fma4(chunk.q[5], input.x[5], fma4(chunk.q[4], input.x[4], input.starts.y))));
  let start = select(input.starts.x, b * unshift(), SCALES == 1u);
  let a = fma4(chunk.q[3], input.x[3], fma4(chunk.q[2], input.x[2],
    fma4(chunk.q[1], input.x[1], fma4(chunk.q[0], input.x[0], start))));
  if (SCALES == 1u) {
    return fma(chunk.scale.x, a, with_offset(chunk.offset.x, input.sums.x + input.sums.y, sum));
  }
  let second = fma(chunk.scale.y, b, with_offset(chunk.offset.y, input.sums.y, sum));
  return fma(chunk.scale.x, a, with_offset(chunk.offset.x, input.sums.x, second));
}

fn add_rows(rows: vec4<u32>, c: u32, input: Input, sums: vec4<f32>) -> vec4<f32> {
  if (LANES == SOFTWARE_LANES) {  // a loop compiles in half the time in SwiftShader, and runs as fast
    var looped = sums;
    for (var r = 0u; r < 4u; r++) { looped[r] = add_chunk(chunk_at(rows[r], c), input, looped[r]); }
    return looped;
  }
  return vec4(
    add_chunk(chunk_at(rows.x, c), input, sums.x), add_chunk(chunk_at(rows.y, c), input, sums.y),
    add_chunk(chunk_at(rows.z, c), input, sums.z), add_chunk(chunk_at(rows.w, c), input, sums.w));
}

fn one_token(is_own: bool, rows: vec4<u32>, x_at: u32, lane: u32) {
  if (!is_own) { return; }
  var sums = vec4<f32>();
  for (var c = lane % LANES; c < n_chunks(); c += LANES) { sums = add_rows(rows, c, input_at(x_at, c), sums); }
  partial[lane] = sums;
}

fn chunks_at(rows: vec4<u32>, c: u32) -> Chunks {
  return Chunks(chunk_at(rows.x, c), chunk_at(rows.y, c), chunk_at(rows.z, c), chunk_at(rows.w, c));
}

fn add_chunks(chunks: Chunks, input: Input, sums: vec4<f32>) -> vec4<f32> {
  return vec4(
    add_chunk(chunks[0], input, sums.x), add_chunk(chunks[1], input, sums.y),
    add_chunk(chunks[2], input, sums.z), add_chunk(chunks[3], input, sums.w));
}

fn many_tokens(is_own: bool, rows: vec4<u32>, x_at: u32, last: u32, lane: u32) {
  if (!is_own) { return; }
  var sums: array<vec4<f32>, MAX_TOKENS>;
  for (var c = lane % LANES; c < n_chunks(); c += LANES) {
    let chunks = chunks_at(rows, c);
    for (var t = 0u; t < TOKENS; t++) {
      sums[t] = add_chunks(chunks, input_at(x_at + min(t, last) * (X_STRIDE / 4u), c), sums[t]);
    }
  }
  for (var t = 0u; t < TOKENS; t++) { partial[t * GROUP_LANES + lane] = sums[t]; }
}
