/* What the kernels use of <string.h>, for targets without a libc. Built in, a copy of a few known bytes is a
 * load and a store, and any other an instruction of bulk memory; a call would cost ten times that. */
#pragma once
#include <stddef.h>

#define memcpy __builtin_memcpy
#define memmove __builtin_memmove
#define memset __builtin_memset
