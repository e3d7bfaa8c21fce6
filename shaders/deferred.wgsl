// deferred: the division of a deferred norm (plan/op_rows_fused.py). Behind the K values of a row of x are the sums of
// squares of quads, which are added in one order: in PIECES pieces, then the pieces.
const PIECES: u32 = 16u;
override IS_DEFERRED: bool = false;
override EPS: f32 = 0.0;

fn square_piece(row: u32, piece: u32) -> f32 {
  let at = (row * X_STRIDE + X_OFFSET + K) / 4u;
  var sum = vec4<f32>();
  for (var i = piece; i < K / 16u; i += PIECES) { sum += x[at + i]; }
  return sum.x + sum.y + sum.z + sum.w;
}

fn norm_scale(squares: f32) -> f32 { return 1.0 / sqrt(fma(squares, 1.0 / f32(K), EPS)); }
