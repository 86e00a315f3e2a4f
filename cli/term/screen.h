/* screen.h: what the terminal can do, and its size. */
#pragma once

#include <stdbool.h>

/* Standard output is a terminal that knows escape sequences: TERM is set, and not "dumb". */
bool ig_screen_is_capable(void);
/* NO_COLOR is not set. */
bool ig_screen_has_colours(void);
/* The size of standard output's window; 80 × 24 if it is not known. */
void ig_screen_size(unsigned *columns, unsigned *rows);
