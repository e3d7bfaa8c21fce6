// matvec_q8: as matvec, with x rounded to 8 bits in workgroup memory, once for all weight rows of the workgroup and
// SLICE chunks at a time.

var<workgroup> codes: array<array<vec4<u32>, 2>, SLICE * TOKENS>;  // [TOKENS, chunks of the slice] runs of a chunk
var<workgroup> scale_sum: array<array<vec2<u32>, 2>, SLICE * TOKENS>;

fn stage_slice(x_at: u32, last: u32, slice: u32, lane: u32) {
  for (var i = lane; i < SLICE * TOKENS; i += GROUP_LANES) {
    let block = slice + i % SLICE;
    if (block < n_chunks()) {
      let at = x_at + min(i / SLICE, last) * (X_STRIDE / 4u);
      let scale = scale_of(at + 8u * block);
      for (var part = 0u; part < 2u; part++) {
        let rounded = rounded_run(at, 2u * block + part, scale);
        // The chunk of this run, and which of its two runs it is: the inverse of first_run in chunk.wgsl.
        let own = i - i % (SPAN / 4u) + (2u * i + part) % (SPAN / 4u);
        let run = (2u * i + part) / (SPAN / 4u) % 2u;
        codes[own][run] = rounded.codes;
        scale_sum[own][run] = vec2(bitcast<u32>(rounded.scale), rounded.sum);
      }
    }
  }
  workgroupBarrier();
}

fn staged(i: u32, run: u32) -> Rounded {
  return Rounded(codes[i][run], bitcast<f32>(scale_sum[i][run].x), scale_sum[i][run].y);
}

fn input_at(slice: u32, t: u32, c: u32) -> Input {
  let i = SLICE * t + c - slice;
  return Input(staged(i, 0u), staged(i, 1u));
}

fn one_token(is_own: bool, rows: vec4<u32>, x_at: u32, lane: u32) {
  var sums = vec4<f32>();
  for (var slice = 0u; slice < n_chunks(); slice += SLICE) {
    stage_slice(x_at, 0u, slice, lane);
    let end = select(0u, min(slice + SLICE, n_chunks()), is_own);
    for (var c = slice + lane % LANES; c < end; c += LANES) {
      let input = input_at(slice, 0u, c);
      sums.x = add_packed(packed_at(rows.x, c), input, sums.x);
      sums.y = add_packed(packed_at(rows.y, c), input, sums.y);
      sums.z = add_packed(packed_at(rows.z, c), input, sums.z);
      sums.w = add_packed(packed_at(rows.w, c), input, sums.w);
    }
    workgroupBarrier();
  }
  partial[lane] = sums;
}

fn many_tokens(is_own: bool, rows: vec4<u32>, x_at: u32, last: u32, lane: u32) {
  var sums: array<vec4<f32>, MAX_TOKENS>;
  for (var slice = 0u; slice < n_chunks(); slice += SLICE) {
    stage_slice(x_at, last, slice, lane);
    let end = select(0u, min(slice + SLICE, n_chunks()), is_own);
    for (var c = slice + lane % LANES; c < end; c += LANES) {
      let chunks = array<Packed, 4>(
        packed_at(rows.x, c), packed_at(rows.y, c), packed_at(rows.z, c), packed_at(rows.w, c));
      for (var t = 0u; t < TOKENS; t++) {
        let input = input_at(slice, t, c);
        sums[t].x = add_packed(chunks[0], input, sums[t].x);
        sums[t].y = add_packed(chunks[1], input, sums[t].y);
        sums[t].z = add_packed(chunks[2], input, sums[t].z);
        sums[t].w = add_packed(chunks[3], input, sums[t].w);
      }
    }
    workgroupBarrier();
  }
  for (var t = 0u; t < TOKENS; t++) { partial[t * GROUP_LANES + lane] = sums[t]; }
}
