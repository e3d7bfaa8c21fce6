/* codec affine3: 12 bytes of a stream of 3-bit codes | scale, minimum. */
#pragma once
enum { BITS = 3 };
#include "affine.h"
