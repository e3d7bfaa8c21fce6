// place: the place of a value in the order of a row: a key in the order of floats, then the id, the lowest first. Places
// of a row are distinct, so the first k are a unique set; 0 is below all places.
inline bool is_nan(float v) { return (as_type<uint>(v) & 0x7FFFFFFFu) > 0x7F800000u; }

inline uint key_of(float v) {  // NaN is above infinity, -0 equals 0
  uint bits = as_type<uint>(v);
  if (is_nan(v)) return ~0u;
  return bits == 0x80000000u ? bits : bits ^ (bits > 0x80000000u ? ~0u : 0x80000000u);
}
inline float value_of(uint key) { return as_type<float>(key ^ (key >= 0x80000000u ? 0x80000000u : ~0u)); }

inline ulong place_of(float v, uint id) { return ulong(key_of(v)) << 32 | ~id; }
inline float value_at(ulong place) { return value_of(uint(place >> 32)); }
inline uint id_at(ulong place) { return ~uint(place); }

// The number of places above one of them: its rank.
inline uint count_above(const threadgroup ulong *places, uint n, ulong place) {
  uint above = 0;
  for (uint i = 0; i < n; i++) above += places[i] > place ? 1 : 0;
  return above;
}
