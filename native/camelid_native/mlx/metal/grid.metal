// grid: values of the grid's entries, GRID_WIDTH signed bytes each, four to a word.
inline float grid_value(uint entry, uint i) {
  uint word = GRID[entry * (GRID_WIDTH / 4) + i / 4];
  return float(char(word >> (i % 4 * 8)));
}
