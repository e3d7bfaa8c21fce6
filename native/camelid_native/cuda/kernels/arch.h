/* arch: the matrix instructions of AMD's architectures. MFMA of a wave of 64 lanes, with its codes of a row; WMMA of 32
 * lanes, with its generation. matrix_units.py has the same list. */
#pragma once
#if defined(__gfx908__) || defined(__gfx90a__)
#define MFMA 16
#elif defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)
#define MFMA 32
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || \
    defined(__gfx1150__) || defined(__gfx1151__) || defined(__gfx1152__)
#define WMMA 11
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define WMMA 12
#endif
