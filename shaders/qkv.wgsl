// qkv: y = weight @ x + bias, rows of queries, keys and values. Heads of queries and keys are rotated as by rope; keys
// and values also go to the row's page. A quad has two runs of two columns, whose pairs are rotated.
@group(0) @binding(6) var<storage, read_write> layer: array<u32>;  // keys, then values from word VALUES_AT on
@group(0) @binding(7) var<storage, read> fine: array<vec2<f32>>;
@group(0) @binding(8) var<storage, read> coarse: array<vec2<f32>>;
@group(0) @binding(9) var<storage, read> bias: array<f32>;

override HAS_BIAS: bool = false;
override TURNED: u32 = 0u;  // columns of queries and keys
override WIDTH: u32 = 0u;  // columns of keys
override V_WIDTH: u32 = 0u;
override VALUES_AT: u32 = 0u;
override HEAD_DIM: u32 = 4u;
override OFFSET: u32 = 0u;  // rotated floats start there in a head; a multiple of 4, like HEAD_DIM and 2 * PAIRS
override IS_ADJACENT: bool = true;  // pairs of neighbours, else of floats PAIRS apart

struct Place { runs: vec2<u32>, pair: u32, is_turned: bool }  // columns of the runs, number of the first pair

fn place_of(quad: u32) -> Place {
  let column = 4u * quad;
  let at = column % HEAD_DIM - OFFSET;  // of the head's rotated floats; before them, a huge number
  let is_turned = column < TURNED && at < 2u * PAIRS;
  if (!is_turned || IS_ADJACENT) { return Place(vec2(column, column + 2u), at / 2u, is_turned); }
  let first = column - at / 2u;
  return Place(vec2(first, first + PAIRS), at / 2u, true);
}

fn n_quads() -> u32 { return N / 4u; }

fn quad_rows(quad: u32) -> vec4<u32> {
  let runs = place_of(quad).runs;
  return vec4(runs.x, runs.x + 1u, runs.y, runs.y + 1u);
}

fn turned_quad(v: vec4<f32>, position: u32, pair: u32) -> vec4<f32> {
  let first = angle(position, pair);
  let second = angle(position, pair + 1u);
  if (IS_ADJACENT) { return vec4(turned(v.xy, first), turned(v.zw, second)); }
  return vec4(turned(v.xz, first), turned(v.yw, second)).xzyw;
}

fn put_run(row: u32, to: u32, column: u32, values: vec2<f32>) {
  y[row * Y_STRIDE + Y_OFFSET + column] = values.x;
  y[row * Y_STRIDE + Y_OFFSET + column + 1u] = values.y;
  if (column >= TURNED) {
    put_pair(VALUES_AT, to * V_WIDTH + column - TURNED, values);
  } else if (column >= TURNED - WIDTH) {
    put_pair(0u, to * WIDTH + column - (TURNED - WIDTH), values);
  }
}

fn finish(t: u32, quad: u32, sums: vec4<f32>, scale: f32) {
  let place = place_of(quad);
  let row = row_at(t);
  var values = sums * scale;
  if (HAS_BIAS) {
    let at = quad_rows(quad);
    values = fma(sums, vec4(scale), vec4(bias[at.x], bias[at.y], bias[at.z], bias[at.w]));
  }
  if (place.is_turned) { values = turned_quad(values, row.position, place.pair); }
  let to = pool_row(table_of(group_at(row.sequence, GROUP)), row.state_row);
  put_run(t, to, place.runs.x, values.xy);
  put_run(t, to, place.runs.y, values.zw);
}
