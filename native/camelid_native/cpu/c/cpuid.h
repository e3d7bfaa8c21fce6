/* Which instruction sets this machine has. */
#pragma once

/* Whether this processor and its operating system run the variant of that name. */
int cam_machine_runs(const char *variant);
