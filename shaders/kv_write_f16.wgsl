// kv_write_f16: two values per word.
const TILE_WORDS: u32 = 32u;
const SCALE_WORDS: u32 = 0u;

fn quants(i: u32) -> u32 { return half_bits(tile[2u * i]) | (half_bits(tile[2u * i + 1u]) << 16u); }

fn scales() -> u32 { return 0u; }
