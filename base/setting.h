/* setting.h: an option of a module, as a configuration sets it. */
#pragma once

#include <stdint.h>

struct ig_setting {
	char *module, *key;
	uint64_t number; /* of a bool 0 or 1, of a time its milliseconds */
	char *text;	 /* of a choice and of text, else NULL */
};
