/* setting.h: the value of a module's option in a configuration. */
#pragma once

#include <stdint.h>

struct ig_setting {
	char *module, *key;
	uint64_t number; /* a bool is 0 or 1, a time is in milliseconds */
	char *text;	 /* of a choice or a text, otherwise NULL */
};
