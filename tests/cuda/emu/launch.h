/* launch: what the stand-in of the driver calls of the emulator. */
#pragma once
namespace emu {
void launch(const Row &kernel, void **arguments, const unsigned *grid, unsigned n_threads);
}
