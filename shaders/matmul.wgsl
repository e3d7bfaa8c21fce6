// matmul: the sums of matmul_tile. A chunk of all weight rows is decoded once to workgroup memory; the runs of x follow
// one another there, since both need more than the 16 KiB that every device has.
var<workgroup> quants: array<vec4<f32>, 512>;  // [8, weight rows]
var<workgroup> affine: array<vec4<f32>, 64>;  // [weight rows] scale and offset of both runs
var<workgroup> input_sums: array<vec2<f32>, 64>;  // [token rows]

fn stage_weights(row: u32, c: u32, slot: u32) {
  var chunk = chunk_at(row, c);
  for (var i = 0u; i < 8u; i++) { quants[64u * i + slot] = chunk.q[i]; }
  affine[slot] = vec4(chunk.scale, chunk.offset);
}

fn stage_sums(x_at: u32, c: u32, token: u32) {
  let a = sum_of(x_of(x_at, c, 0u), x_of(x_at, c, 1u), x_of(x_at, c, 2u), x_of(x_at, c, 3u));
  let b = sum_of(x_of(x_at, c, 4u), x_of(x_at, c, 5u), x_of(x_at, c, 6u), x_of(x_at, c, 7u));
  input_sums[token] = vec2(a, b);
}

fn weights_at(i: u32, slot: u32) -> mat4x4<f32> {  // four columns of four weight rows
  let at = 64u * i + slot;
  return mat4x4<f32>(quants[at], quants[at + 1u], quants[at + 2u], quants[at + 3u]);
}

fn add_products(w: mat4x4<f32>, input: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
  return vec4(
    fma4(w[0], input, sums.x), fma4(w[1], input, sums.y), fma4(w[2], input, sums.z), fma4(w[3], input, sums.w));
}

fn affine_of(run: u32, slot: u32) -> mat2x4<f32> {  // scales and offsets of 4 weight rows
  let a = affine[slot];
  let b = affine[slot + 1u];
  let c = affine[slot + 2u];
  let d = affine[slot + 3u];
  if (run == 0u) { return mat2x4<f32>(vec4(a.x, b.x, c.x, d.x), vec4(a.z, b.z, c.z, d.z)); }
  return mat2x4<f32>(vec4(a.y, b.y, c.y, d.y), vec4(a.w, b.w, c.w, d.w));
}

fn begun(run: u32, token: u32, second: vec4<f32>) -> vec4<f32> {  // products of a run, the second one first
  if (SCALES == 1u && run == 0u) { return second * unshift(); }
  return vec4(starts_of(input_sums[token])[run]);
}

fn scaled(factors: mat2x4<f32>, run: u32, token: u32, products: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
  if (ZERO != 0) { return fma(factors[0], products, sums); }
  let v = input_sums[token];
  return fma(factors[0], products, fma(factors[1], vec4(select(v[run], v.x + v.y, SCALES == 1u)), sums));
}

fn tile_totals(row: u32, first: u32, last: u32, lane: u32) -> array<vec4<f32>, SHARE> {
  let slot = lane / 16u * 4u;
  let own = lane % 16u;
  let summed = x_row(first, lane % 64u, last);
  let staged = x_row(first, lane / 4u, last);
  let to = 64u * (lane % 4u) + lane / 4u;
  var totals: array<vec4<f32>, SHARE>;
  var sums: array<vec4<f32>, SHARE>;
  var products: array<vec4<f32>, SHARE>;
  for (var start = 0u; start < min(LANES, n_chunks()); start++) {
    for (var j = 0u; j < SHARE; j++) { sums[j] = vec4<f32>(); }
    for (var c = start; c < n_chunks(); c += LANES) {
      if (lane < 64u) { stage_weights(row, c, lane); }
      if (lane >= 192u) { stage_sums(summed, c, lane - 192u); }
      for (var done = 0u; done < 2u; done++) {
        let run = 1u - done;
        inputs[to] = x_of(staged, c, 4u * run + lane % 4u);
        workgroupBarrier();
        for (var j = 0u; j < TOKENS / 16u; j++) { products[j] = begun(run, own + 16u * j, products[j]); }
        for (var i = 0u; i < 4u; i++) {
          let w = weights_at(4u * run + i, slot);
          for (var j = 0u; j < TOKENS / 16u; j++) {
            products[j] = add_products(w, inputs[64u * i + own + 16u * j], products[j]);
          }
        }
        if (SCALES == 2u || run == 0u) {
          let factors = affine_of(run, slot);
          for (var j = 0u; j < TOKENS / 16u; j++) {
            sums[j] = scaled(factors, run, own + 16u * j, products[j], sums[j]);
          }
        }
        workgroupBarrier();
      }
    }
    for (var j = 0u; j < TOKENS / 16u; j++) { totals[j] += sums[j]; }
  }
  return totals;
}
