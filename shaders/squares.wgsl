// squares: the sums of squares of a deferred norm in matvec, for all token rows of a workgroup.
var<workgroup> square_pieces: array<f32, PIECES * TOKENS>;  // [TOKENS, PIECES]

fn stage_squares(first: u32, last: u32, lane: u32) {
  for (var i = lane; i < PIECES * TOKENS; i += GROUP_LANES) {
    square_pieces[i] = square_piece(first + min(i / PIECES, last), i % PIECES);
  }
}

fn squares_of(t: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < PIECES; i++) { sum += square_pieces[t * PIECES + i]; }
  return sum;
}
