// matmul_q8: the sums of matmul_tile, with x rounded to 8 bits. A chunk of all weight rows and token rows is in
// workgroup memory.
var<workgroup> quants: array<vec4<u32>, 128>;  // [2, weight rows] runs
var<workgroup> affine: array<vec4<f32>, 64>;  // [weight rows] scale and offset of both runs
var<workgroup> codes: array<vec4<u32>, 128>;  // [2, token rows] runs
var<workgroup> scale_sum: array<vec2<u32>, 128>;

fn stage_weights(row: u32, c: u32, slot: u32) {
  let p = packed_at(row, c);
  quants[slot] = p.a;
  quants[64u + slot] = p.b;
  affine[slot] = vec4(p.scale, p.offset);
}

fn stage_run(x_at: u32, run: u32, slot: u32) {
  let rounded = rounded_run(x_at, run, scale_of(x_at + run / 2u * 8u));
  codes[slot] = rounded.codes;
  scale_sum[slot] = vec2(bitcast<u32>(rounded.scale), rounded.sum);
}

fn packed_of(slot: u32) -> Packed { return Packed(quants[slot], quants[64u + slot], affine[slot].xy, affine[slot].zw); }

fn staged(slot: u32) -> Rounded {
  return Rounded(codes[slot], bitcast<f32>(scale_sum[slot].x), scale_sum[slot].y);
}

fn input_of(t: u32) -> Input { return Input(staged(t), staged(64u + t)); }

fn tile_totals(row: u32, first: u32, last: u32, lane: u32) -> array<vec4<f32>, SHARE> {
  let slot = lane / 16u * 4u;
  let own = lane % 16u;
  let staged = x_row(first, lane % 64u, last);
  var totals: array<vec4<f32>, SHARE>;
  var sums: array<vec4<f32>, SHARE>;
  for (var start = 0u; start < min(LANES, n_chunks()); start++) {
    for (var j = 0u; j < SHARE; j++) { sums[j] = vec4<f32>(); }
    for (var c = start; c < n_chunks(); c += LANES) {
      if (lane < 64u) {
        stage_weights(row, c, lane);
      } else if (lane < 128u) {
        stage_run(staged, first_run(c), lane - 64u);
      } else if (lane < 192u) {
        stage_run(staged, first_run(c) + SPAN / 4u, lane - 64u);
      }
      workgroupBarrier();
      let rows = array<Packed, 4>(packed_of(slot), packed_of(slot + 1u), packed_of(slot + 2u), packed_of(slot + 3u));
      for (var j = 0u; j < TOKENS / 16u; j++) {
        let input = input_of(own + 16u * j);
        sums[j].x = add_packed(rows[0], input, sums[j].x);
        sums[j].y = add_packed(rows[1], input, sums[j].y);
        sums[j].z = add_packed(rows[2], input, sums[j].z);
        sums[j].w = add_packed(rows[3], input, sums[j].w);
      }
      workgroupBarrier();
    }
    for (var j = 0u; j < TOKENS / 16u; j++) { totals[j] += sums[j]; }
  }
  return totals;
}
