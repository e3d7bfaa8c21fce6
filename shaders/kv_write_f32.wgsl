// kv_write_f32: one value per word.
const TILE_WORDS: u32 = 64u;
const SCALE_WORDS: u32 = 0u;

fn quants(i: u32) -> u32 { return bitcast<u32>(tile[i]); }

fn scales() -> u32 { return 0u; }
