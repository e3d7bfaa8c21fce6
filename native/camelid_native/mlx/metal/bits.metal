// bits: fields of blocks. A block begins at an even address unless its codec says otherwise.
inline uint two_bytes(const device uchar *at) { return *(const device ushort *)at; }
inline uint four_bytes(const device uchar *at) { return two_bytes(at) | two_bytes(at + 2) << 16; }
inline float half_at(const device uchar *at) { return float(*(const device half *)at); }
inline uint three_bytes(const device uchar *at) { return at[0] | at[1] << 8 | at[2] << 16; }  // at any address
