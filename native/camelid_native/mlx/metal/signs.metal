// signs: a byte of signs, lowest bit first. Seven stored bits have an eighth that makes the number of minuses even.
inline float with_sign(float v, uint signs, uint i) { return (signs >> i & 1) ? -v : v; }
inline uint even_signs(uint word, uint shift) {
  uint seven = word >> shift & 127;
  return seven | (popcount(seven) & 1) << 7;
}
