/* What the kernels use of <string.h>, for targets without a libc; the compiler's runtime has the code. */
#pragma once
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
